package monitor

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// frame is an event as it came, not yet decoded.
type frame []byte

// frames is gRPC's codec for messages, but that it leaves frames as they came.
type frames struct{ encoding.CodecV2 }

func newFrames() frames { return frames{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c frames) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	*f = data.Materialize()
	return nil
}

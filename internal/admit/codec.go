package admit

import (
	"sync"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// large messages are decoded one after the other: two bytes can make a message of a
// hundred, so each could become some 15 MiB, until the guard has looked at it. Nor do
// they take their bytes from gRPC's pool, which has nothing between 32 KiB and 1 MiB.
// Those of a mesh have a few KiB.
const large = 16 << 10

// codec is gRPC's own with that, and counts the bytes of a message.
type codec struct {
	encoding.CodecV2
	turn sync.Mutex
}

// NewCodec makes one, for a server or for calls to others.
func NewCodec() encoding.CodecV2 {
	return &codec{CodecV2: encoding.GetCodecV2(grpcproto.Name)}
}

// sized is a message to be decoded. The codec knows how many bytes it has; to ask the
// message takes a walk through it.
type sized struct {
	message any
	bytes   int64
}

// Unmarshal implements encoding.CodecV2.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	if s, ok := v.(*sized); ok {
		v, s.bytes = s.message, int64(data.Len())
	}
	if data.Len() <= large {
		return c.CodecV2.Unmarshal(data, v)
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.CodecV2.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data.Materialize())}, v)
}

// Marshal implements encoding.CodecV2. It does as gRPC's own, which would walk through the
// message once more to learn its size.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size, options := proto.Size(m), proto.MarshalOptions{UseCachedSize: true}
	if size > large || mem.IsBelowBufferPoolingThreshold(size) {
		block, err := options.Marshal(m)
		return mem.BufferSlice{mem.SliceBuffer(block)}, err
	}
	pool := mem.DefaultBufferPool()
	buffer := pool.Get(size)
	if _, err := options.MarshalAppend((*buffer)[:0], m); err != nil {
		pool.Put(buffer)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buffer, pool)}, nil
}

package monitor

import (
	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/packed"
)

// told is a connection as subscribers are told of it. It is encoded once, as its part of
// an event: for each of them, for those who join later, and for what the leg keeps.
type told struct {
	packed.Message[*networkservice.Connection]
	// part ends with the connection. It is nil of one that cannot be encoded.
	part []byte
}

// toldOf keeps conn as it is now; conn stays the caller's.
func toldOf(conn *networkservice.Connection) told {
	var t told
	t.Message, t.part = packed.PackBehind(conn, func(size int) []byte {
		key := protowire.AppendString(protowire.AppendTag(nil, entryKey, protowire.BytesType), conn.GetId())
		head := protowire.AppendTag(nil, eventConnections, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(len(key)+protowire.SizeTag(entryValue)+protowire.SizeBytes(size)))
		head = append(head, key...)
		head = protowire.AppendTag(head, entryValue, protowire.BytesType)
		return protowire.AppendVarint(head, uint64(size))
	})
	return t
}

// event returns an event of that. Its connection is there for those behind gRPC alone: it
// is among the fields that the API's message does not know, as it goes out.
func (t told) event(kind networkservice.ConnectionEventType) *networkservice.ConnectionEvent {
	if t.part == nil {
		return eventOf(kind, t.Unpack())
	}
	event := &networkservice.ConnectionEvent{Type: kind}
	event.ProtoReflect().SetUnknown(t.part)
	return event
}

// Package packed keeps messages as one block of bytes each.
//
// A connection with eight segments is a tree of some hundred objects. Kept for
// minutes among the short-lived ones of every refresh, they take several times
// their size: in headers and maps, in pages that the collector can use for nothing
// else, and in its time to mark them. A block of bytes is one object without
// pointers.
//
// A block is never changed, so it may be shared; whoever unpacks it owns what it
// gets.
package packed

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Message is a message of type M, or none.
type Message[M proto.Message] struct {
	bytes []byte
	set   bool
}

// Pack encodes m, which stays the caller's. It panics on what gRPC could neither
// have received nor send, a string that is not UTF-8.
func Pack[M proto.Message](m M) Message[M] {
	bytes, err := proto.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("packed: %v", err))
	}
	return Message[M]{bytes: bytes, set: true}
}

// Set tells whether there is a message.
func (p Message[M]) Set() bool { return p.set }

// Unpack returns a message of the caller's own, or nil if there is none.
func (p Message[M]) Unpack() M {
	var m M
	if !p.set {
		return m
	}
	m = m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(p.bytes, m); err != nil {
		panic(fmt.Sprintf("packed: what was packed here: %v", err))
	}
	return m
}

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
	"bytes"
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
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("packed: %v", err))
	}
	return Message[M]{bytes: encoded, set: true}
}

// Set tells whether there is a message.
func (p Message[M]) Set() bool { return p.set }

// Equal tells whether both hold the same. (It may take equal messages with unknown
// fields for different ones.)
func (p Message[M]) Equal(other Message[M]) bool {
	return p.set == other.set && bytes.Equal(p.bytes, other.bytes)
}

// Size is how much it takes, in bytes.
func (p Message[M]) Size() int { return len(p.bytes) }

// Into makes m the same as what was packed.
func (p Message[M]) Into(m M) {
	if err := proto.Unmarshal(p.bytes, m); err != nil {
		panic(fmt.Sprintf("packed: what was packed here: %v", err))
	}
}

// Unpack returns a message of the caller's own, or nil if there is none.
func (p Message[M]) Unpack() M {
	var m M
	if !p.set {
		return m
	}
	m = m.ProtoReflect().New().Interface().(M)
	p.Into(m)
	return m
}

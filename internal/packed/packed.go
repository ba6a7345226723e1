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

	"google.golang.org/protobuf/proto"
)

// Message is a message of type M, or none.
type Message[M proto.Message] struct {
	bytes []byte
	// tree is a copy of one that cannot be encoded.
	tree M
	kind kind
}

type kind byte

const (
	none kind = iota
	encoded
	copied
)

// Pack keeps m as it is now; m stays the caller's. One that cannot be encoded, for a
// string that is not UTF-8, gRPC could neither have received nor send; it is copied.
func Pack[M proto.Message](m M) Message[M] {
	p, _ := PackBehind(m, func(int) []byte { return nil })
	return p
}

// PackBehind is Pack into a block that begins with something else, which head returns for
// the size of the message. The block is returned as well, or nil if m cannot be encoded.
func PackBehind[M proto.Message](m M, head func(size int) []byte) (p Message[M], block []byte) {
	options := proto.MarshalOptions{Deterministic: true}
	size := options.Size(m)
	first := head(size)
	block = append(make([]byte, 0, len(first)+size), first...)
	options.UseCachedSize = true
	block, err := options.MarshalAppend(block, m)
	if err != nil {
		return Message[M]{tree: proto.CloneOf(m), kind: copied}, nil
	}
	return Message[M]{bytes: block[len(first):], kind: encoded}, block
}

// Encoded is the block, which is not to be changed, or nil of what cannot be encoded.
func (p Message[M]) Encoded() []byte { return p.bytes }

// Set tells whether there is a message.
func (p Message[M]) Set() bool { return p.kind != none }

// Equal tells whether both hold the same. (It may take equal messages for different
// ones, where they have unknown fields or could not be encoded.)
func (p Message[M]) Equal(other Message[M]) bool {
	return p.kind == other.kind && p.kind != copied && bytes.Equal(p.bytes, other.bytes)
}

// Size is how much it takes, in bytes.
func (p Message[M]) Size() int {
	if p.kind == copied {
		return proto.Size(p.tree)
	}
	return len(p.bytes)
}

// Contains tells, without unpacking it, whether the text may be in the message. If not,
// none of its strings is that.
func (p Message[M]) Contains(text string) bool {
	return p.kind == copied || p.kind == encoded && bytes.Contains(p.bytes, []byte(text))
}

// Into makes m the same as what was packed.
func (p Message[M]) Into(m M) {
	proto.Reset(m)
	if p.kind == copied {
		proto.Merge(m, p.tree)
		return
	}
	// What was encoded here is decoded without an error.
	_ = proto.Unmarshal(p.bytes, m)
}

// Unpack returns a message of the caller's own, or nil if there is none.
func (p Message[M]) Unpack() M {
	var m M
	if p.kind == none {
		return m
	}
	m, _ = m.ProtoReflect().New().Interface().(M)
	p.Into(m)
	return m
}

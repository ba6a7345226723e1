package monitor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Most of what a far side says is its own report of an answer that it has just given. To
// decode that, a tree of some hundred objects, only to find that it is no news was a
// fourteenth of the CPU time of a refresh. So it is looked at as it came; and what
// subscribers are told is encoded once, for all of them and for what is kept.

// Numbers of fields in the API's messages. A test holds them against those.
const (
	eventType, eventConnections      = 1, 2
	entryKey, entryValue             = 1, 2 // of a map
	connContext, connPath, connState = 4, 6, 9
	pathIndex, pathSegments          = 1, 2
	segmentID                        = 2
)

var (
	// errEncoding says that a message is none.
	errEncoding = errors.New("monitor: malformed message")
	// errUnusual says that something is there twice, which no encoder does: what that
	// means is the API's decoder to say.
	errUnusual = errors.New("monitor: unusual message")
)

// field is one field of an encoded message.
type field struct {
	num  protowire.Number
	kind protowire.Type
	// whole is all of it. Of its value it has the bytes, or the number.
	whole, bytes []byte
	number       uint64
}

// holds tells whether it is the one with that number, and a message or string.
func (f field) holds(num protowire.Number) bool {
	return f.num == num && f.kind == protowire.BytesType
}

// counts tells whether it is the one with that number, and a number.
func (f field) counts(num protowire.Number) bool {
	return f.num == num && f.kind == protowire.VarintType
}

// fields are those of a message, in their order, up to an error.
func fields(message []byte) iter.Seq2[field, error] {
	return func(yield func(field, error) bool) {
		for len(message) > 0 {
			var f field
			var head, size int
			f.num, f.kind, head = protowire.ConsumeTag(message)
			if head > 0 {
				switch value := message[head:]; f.kind {
				case protowire.BytesType:
					f.bytes, size = protowire.ConsumeBytes(value)
				case protowire.VarintType:
					f.number, size = protowire.ConsumeVarint(value)
				default:
					size = protowire.ConsumeFieldValue(f.num, f.kind, value)
				}
			}
			if head < 0 || size < 0 {
				yield(field{}, errEncoding)
				return
			}
			f.whole, message = message[:head+size], message[head+size:]
			if !yield(f, nil) {
				return
			}
		}
	}
}

// heard is an event of the far side with its connections as they came.
type heard struct {
	kind  networkservice.ConnectionEventType
	conns [][]byte
}

// parse reads a frame.
func parse(f frame) (heard, error) {
	h, err := read(f)
	if !errors.Is(err, errUnusual) {
		return h, err
	}
	if f, err = usual(f, new(networkservice.ConnectionEvent)); err != nil {
		return heard{}, fmt.Errorf("monitor: event: %w", err)
	}
	return read(f)
}

// usual is a message of that type as an encoder makes it.
func usual(raw []byte, m proto.Message) ([]byte, error) {
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

// read is parse for what encoders make.
func read(f frame) (heard, error) {
	var h heard
	var keys []string
	for f, err := range fields(f) {
		switch {
		case err != nil:
			return heard{}, err
		case f.counts(eventType):
			h.kind = networkservice.ConnectionEventType(f.number)
		case f.holds(eventConnections):
			key, conn, err := mapEntry(f.bytes)
			if err != nil {
				return heard{}, err
			}
			keys, h.conns = append(keys, key), append(h.conns, conn)
		}
	}
	if len(keys) > 1 {
		slices.Sort(keys)
		if len(slices.Compact(keys)) < len(h.conns) {
			return heard{}, errUnusual
		}
	}
	return h, nil
}

// mapEntry reads an entry of an event's map: one without a value has an empty connection.
func mapEntry(message []byte) (key string, conn []byte, err error) {
	for f, err := range fields(message) {
		switch {
		case err != nil:
			return "", nil, err
		case f.holds(entryKey):
			key = string(f.bytes)
		case f.holds(entryValue) && conn != nil:
			return "", nil, errUnusual
		case f.holds(entryValue):
			conn = f.bytes
		}
	}
	return key, conn, nil
}

// view is what a look at an encoded connection tells of it.
type view struct {
	// ours tells that it is about the leg at the place that it is looked at from.
	ours  bool
	state networkservice.State
	// digest stands for what a far side may change but for the state: the context, and
	// the path behind the place. (Two that differ have the same once in 2^64; and equal
	// ones may have different ones, if an encoder other than Go's has made one of them.)
	digest uint64
}

var seed = maphash.MakeSeed()

// look looks at a connection from a place of its path. One that is unusual has to be
// decoded first.
func (p place) look(conn []byte) (v view, err error) {
	var context, path []byte
	for f, err := range fields(conn) {
		switch {
		case err != nil:
			return view{}, err
		case f.holds(connContext) && context == nil:
			context = f.bytes
		case f.holds(connPath) && path == nil:
			path = f.bytes
		case f.holds(connContext), f.holds(connPath):
			return view{}, errUnusual
		case f.counts(connState):
			v.state = networkservice.State(f.number)
		}
	}
	var digest maphash.Hash
	digest.SetSeed(seed)
	if err := mix(&digest, context); err != nil {
		return view{}, err
	}
	return p.along(path, v, &digest)
}

// along looks at the path.
func (p place) along(path []byte, v view, digest *maphash.Hash) (view, error) {
	index, at, own := uint32(0), 0, int(p.index)
	for f, err := range fields(path) {
		switch {
		case err != nil:
			return view{}, err
		case f.counts(pathIndex):
			index = uint32(f.number)
		case f.holds(pathSegments):
			if at == own {
				v.ours, err = p.has(f.bytes)
			} else if at > own {
				err = mix(digest, f.bytes)
			}
			if err != nil {
				return view{}, err
			}
			at++
		}
	}
	// It is seen from the next place, or from ours, where the peer has an equal name and
	// the two segments are one.
	v.ours = v.ours && (index == p.index || index == p.index+1)
	v.digest = digest.Sum64()
	return v, nil
}

// has tells whether a segment is our own.
func (p place) has(segment []byte) (ours bool, err error) {
	ours = p.id == ""
	for f, err := range fields(segment) {
		if err != nil {
			return false, err
		}
		if f.holds(segmentID) {
			ours = string(f.bytes) == p.id
		}
	}
	return ours, nil
}

// mix adds a message, or that there is none. The order of its fields does not matter: maps
// have none.
func mix(digest *maphash.Hash, message []byte) error {
	sum := uint64(0)
	if message != nil {
		sum = 1
	}
	for f, err := range fields(message) {
		if err != nil {
			return err
		}
		sum += maphash.Bytes(seed, f.whole)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], sum)
	_, _ = digest.Write(b[:])
	return nil
}

package hostile_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// huge is longer than any text may be, and many more than there may be of
	// anything; both leave room in a message.
	huge = 64 << 10
	many = 5_000
	// mark takes the place of bytes that are no UTF-8, which cannot be marshalled.
	mark = "NOT-UTF-8"
	// depth bounds the walk into messages that hold each other.
	depth = 8

	tokenHeader = "token header: "
	pathHeader  = "path header: "
)

// place leads from the root of a message to a message in it.
type place func(root protoreflect.Message) protoreflect.Message

// generator spoils one field after the other of a good message.
type generator struct {
	t      *testing.T
	call   call
	inputs []*input
}

// spoilFields returns an input for each field of the message and each fault that
// a field of its kind can have.
func spoilFields(t *testing.T, c call) []*input {
	g := &generator{t: t, call: c}
	g.walk(c.good.ProtoReflect().Descriptor(), c.root, func(root protoreflect.Message) protoreflect.Message { return root }, 0)
	return g.inputs
}

func (g *generator) walk(message protoreflect.MessageDescriptor, path string, at place, level int) {
	if level > depth {
		return
	}
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		name := string(field.Name())
		if path != "" {
			name = path + "." + name
		}
		switch {
		case field.IsMap():
			g.spoilMap(field, name, at, level)
		case field.IsList():
			g.spoilList(field, name, at, level)
		case field.Kind() == protoreflect.MessageKind:
			g.spoilMessage(field, name, at, level)
		default:
			g.spoilScalar(field, name, at)
		}
	}
}

// add makes an input of the good message with one change.
func (g *generator) add(fault, field string, at place, spoil func(m protoreflect.Message)) {
	root := proto.Clone(g.call.good)
	spoil(at(root.ProtoReflect()))
	wire := bytes.ReplaceAll(wireOf(g.t, root), []byte(mark), []byte("\xff\xfe"+mark[2:]))
	g.inputs = append(g.inputs, &input{method: g.call.method, fault: fault, field: field, wire: wire})
}

// badText is one fault of a text.
type badText struct{ fault, text string }

// texts are the faults that the text of a field may have.
func texts(field string) []badText {
	faults := []badText{
		{"empty text", ""},
		{"text of 64 KiB", strings.Repeat("x", huge)},
		{"control characters", "a\x00\n\x1b[31m"},
		{"no UTF-8", mark},
	}
	switch last := field[strings.LastIndexByte(field, '.')+1:]; {
	case last == "token":
		return append(faults, badText{"no JWT", "token"}, badText{"half a JWT", "a.b"}, badText{"a JWT's form, not its content", "a.b.c"})
	case last == "url":
		return append(faults, badText{"no URL", "::"}, badText{"half an address", "tcp://[::1"},
			badText{"URL without a host", "tcp://"}, badText{"URL of another kind", "ftp://127.0.0.1:1"})
	case strings.HasSuffix(last, "name"):
		return append(faults, badText{"several @", "a@b@c"}, badText{"nothing around @", "@"})
	}
	return faults
}

func (g *generator) spoilScalar(field protoreflect.FieldDescriptor, name string, at place) {
	set := func(fault string, v protoreflect.Value) {
		g.add(fault, name, at, func(m protoreflect.Message) { m.Set(field, v) })
	}
	switch field.Kind() {
	case protoreflect.StringKind:
		for _, bad := range texts(name) {
			set(bad.fault, protoreflect.ValueOfString(bad.text))
		}
	case protoreflect.BytesKind:
		set("64 KiB", protoreflect.ValueOfBytes(make([]byte, huge)))
	case protoreflect.EnumKind:
		set("absurd number", protoreflect.ValueOfEnum(math.MaxInt32))
		set("negative number", protoreflect.ValueOfEnum(-1))
	case protoreflect.Uint32Kind:
		set("absurd number", protoreflect.ValueOfUint32(math.MaxUint32))
		set("past the end", protoreflect.ValueOfUint32(3))
	case protoreflect.Uint64Kind:
		set("absurd number", protoreflect.ValueOfUint64(math.MaxUint64))
	case protoreflect.Int32Kind:
		set("absurd number", protoreflect.ValueOfInt32(math.MaxInt32))
		set("negative number", protoreflect.ValueOfInt32(math.MinInt32))
	case protoreflect.Int64Kind:
		set("absurd number", protoreflect.ValueOfInt64(math.MaxInt64))
		set("negative number", protoreflect.ValueOfInt64(math.MinInt64))
	case protoreflect.BoolKind: // has no bad value
	default:
		g.t.Fatalf("no faults for %s, a %s", field.FullName(), field.Kind())
	}
}

func (g *generator) spoilMessage(field protoreflect.FieldDescriptor, name string, at place, level int) {
	g.add("missing", name, at, func(m protoreflect.Message) { m.Clear(field) })
	g.add("empty message", name, at, func(m protoreflect.Message) { m.Set(field, m.NewField(field)) })
	g.walk(field.Message(), name, func(root protoreflect.Message) protoreflect.Message { return at(root).Mutable(field).Message() }, level+1)
}

func (g *generator) spoilList(field protoreflect.FieldDescriptor, name string, at place, level int) {
	list := func(m protoreflect.Message) protoreflect.List { return m.Mutable(field).List() }
	g.add("missing", name, at, func(m protoreflect.Message) { m.Clear(field) })
	g.add("thousands", name, at, func(m protoreflect.Message) {
		for range many {
			list(m).Append(list(m).NewElement())
		}
	})
	first := name + "[0]"
	if field.Kind() != protoreflect.MessageKind {
		for _, bad := range texts("") {
			g.add(bad.fault, first, at, func(m protoreflect.Message) {
				list(m).Truncate(0)
				list(m).Append(protoreflect.ValueOfString(bad.text))
			})
		}
		return
	}
	element := func(m protoreflect.Message) protoreflect.Message {
		if list(m).Len() == 0 {
			list(m).AppendMutable()
		}
		return list(m).Get(0).Message()
	}
	g.add("empty message", first, at, func(m protoreflect.Message) {
		element(m)
		list(m).Set(0, list(m).NewElement())
	})
	g.walk(field.Message(), first, func(root protoreflect.Message) protoreflect.Message { return element(at(root)) }, level+1)
}

func (g *generator) spoilMap(field protoreflect.FieldDescriptor, name string, at place, level int) {
	value := field.MapValue()
	put := func(m protoreflect.Message, key string, text string) {
		entries := m.Mutable(field).Map()
		v := entries.NewValue()
		if value.Kind() == protoreflect.StringKind {
			v = protoreflect.ValueOfString(text)
		}
		entries.Set(protoreflect.ValueOfString(key).MapKey(), v)
	}
	g.add("thousands", name, at, func(m protoreflect.Message) {
		for i := range many {
			put(m, fmt.Sprint(i), "")
		}
	})
	for _, bad := range texts("") {
		g.add(bad.fault+" as a key", name, at, func(m protoreflect.Message) { put(m, bad.text, "") })
	}
	if value.Kind() == protoreflect.StringKind {
		for _, bad := range texts("") {
			g.add(bad.fault+" as a value", name, at, func(m protoreflect.Message) { put(m, "key", bad.text) })
		}
		return
	}
	g.add("empty message", name, at, func(m protoreflect.Message) { put(m, "key", "") })
	g.walk(value.Message(), name, func(root protoreflect.Message) protoreflect.Message {
		entries := at(root).Mutable(field).Map()
		return entries.Mutable(protoreflect.ValueOfString("key").MapKey()).Message()
	}, level+1)
}

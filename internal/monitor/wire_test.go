package monitor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestWire_FieldsAreTheAPIs(t *testing.T) {
	number := func(m proto.Message, name protoreflect.Name) int {
		return int(m.ProtoReflect().Descriptor().Fields().ByName(name).Number())
	}
	event, conn, path := &networkservice.ConnectionEvent{}, &networkservice.Connection{}, &networkservice.Path{}
	require.Equal(t, eventType, number(event, "type"))
	require.Equal(t, eventConnections, number(event, "connections"))
	require.Equal(t, connContext, number(conn, "context"))
	require.Equal(t, connPath, number(conn, "path"))
	require.Equal(t, connState, number(conn, "state"))
	require.Equal(t, pathIndex, number(path, "index"))
	require.Equal(t, pathSegments, number(path, "path_segments"))
	require.Equal(t, segmentID, number(&networkservice.PathSegment{}, "id"))
}

func digestOf(t testing.TB, conn *networkservice.Connection) uint64 {
	v, err := placeOf(ourConn()).look(encoded(t, conn))
	require.NoError(t, err)
	return v.digest
}

// rich is the far side's view of a connection with all that a digest is to cover.
func rich() *networkservice.Connection {
	conn := farConn()
	conn.Context.ExtraContext = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}
	conn.Context.IpContext = &networkservice.IPContext{SrcIpAddrs: []string{"10.0.0.1/32", "10.0.0.2/32"}}
	behind := conn.GetPath().GetPathSegments()[2]
	behind.Metrics = map[string]string{"rx": "1", "tx": "2", "drops": "3", "interface": "x"}
	conn.Path.PathSegments = append(conn.Path.PathSegments, &networkservice.PathSegment{Name: "D", Id: "d", Token: "td"})
	return conn
}

func TestWire_DigestIsOfWhatTheFarSideMayChange(t *testing.T) {
	want := digestOf(t, rich())
	for range 20 { // maps have no order
		require.Equal(t, want, digestOf(t, rich()))
	}
	for name, change := range map[string]func(*networkservice.Connection){
		"the id":              func(c *networkservice.Connection) { c.Id = "x" },
		"the index":           func(c *networkservice.Connection) { c.Path.Index = 1 },
		"the state":           func(c *networkservice.Connection) { c.State = networkservice.State_DOWN },
		"the mechanism":       func(c *networkservice.Connection) { c.Mechanism = nil },
		"the names":           func(c *networkservice.Connection) { c.NetworkServiceEndpointName, c.NetworkService = "x", "y" },
		"the labels":          func(c *networkservice.Connection) { c.Labels = map[string]string{"a": "b"} },
		"a segment before us": func(c *networkservice.Connection) { c.Path.PathSegments[0].Token = "x" },
		"our segment":         func(c *networkservice.Connection) { c.Path.PathSegments[1].Token = "x" },
	} {
		conn := rich()
		change(conn)
		require.Equal(t, want, digestOf(t, conn), "%s is not the far side's to say", name)
	}
	seen := map[uint64]string{want: "as it was"}
	for name, change := range map[string]func(*networkservice.Connection){
		"no context":             func(c *networkservice.Connection) { c.Context = nil },
		"an empty context":       func(c *networkservice.Connection) { c.Context = new(networkservice.ConnectionContext) },
		"the context":            func(c *networkservice.Connection) { c.Context.MTU++ },
		"a value in the context": func(c *networkservice.Connection) { c.Context.ExtraContext["a"] = "2" },
		"values swapped": func(c *networkservice.Connection) {
			c.Context.ExtraContext["a"], c.Context.ExtraContext["b"] = "2", "1"
		},
		"addresses in other order": func(c *networkservice.Connection) {
			c.Context.IpContext.SrcIpAddrs = []string{"10.0.0.2/32", "10.0.0.1/32"}
		},
		"a token": func(c *networkservice.Connection) { c.Path.PathSegments[2].Token = "x" },
		"an expiry": func(c *networkservice.Connection) {
			c.Path.PathSegments[2].Expires = timestamppb.New(time.Unix(1001, 0))
		},
		"a metric":       func(c *networkservice.Connection) { c.Path.PathSegments[2].Metrics["rx"] = "2" },
		"a metric less":  func(c *networkservice.Connection) { delete(c.Path.PathSegments[2].Metrics, "rx") },
		"an id":          func(c *networkservice.Connection) { c.Path.PathSegments[3].Id = "x" },
		"a name":         func(c *networkservice.Connection) { c.Path.PathSegments[3].Name = "x" },
		"a segment less": func(c *networkservice.Connection) { c.Path.PathSegments = c.Path.PathSegments[:3] },
		"an empty segment more": func(c *networkservice.Connection) {
			c.Path.PathSegments = append(c.Path.PathSegments, new(networkservice.PathSegment))
		},
		"segments swapped": func(c *networkservice.Connection) {
			c.Path.PathSegments[2], c.Path.PathSegments[3] = c.Path.PathSegments[3], c.Path.PathSegments[2]
		},
		"no path": func(c *networkservice.Connection) { c.Path = nil },
	} {
		conn := rich()
		change(conn)
		digest := digestOf(t, conn)
		require.NotContains(t, seen, digest, "%s is the same as %s", name, seen[digest])
		seen[digest] = name
	}
}

// What the leg is known as, and what the far side's report of that says, are encoded by
// two processes, and differ in all that is not the far side's to say.
func TestWire_ReportOfAnAnswerIsKnown(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		conn := rich()
		conn.Id, conn.Path.Index, conn.Labels = "b", 1, map[string]string{"of": "the client"}
		e := table.answer(conn)
		report := func(change func(*networkservice.Connection)) *word {
			far := rich()
			change(far)
			w, err := placeOf(conn).word(networkservice.ConnectionEventType_UPDATE, encoded(t, far))
			require.NoError(t, err)
			require.NotNil(t, w)
			return w
		}
		w := report(func(*networkservice.Connection) {})
		require.True(t, e.knows(w))
		table.judge(e, w)
		require.Nil(t, w.conn, "it is not decoded")
		require.False(t, e.knows(report(func(far *networkservice.Connection) { far.State = networkservice.State_DOWN })))
		require.False(t, e.knows(report(func(far *networkservice.Connection) { far.Path.PathSegments[2].Token = "newer" })))
	})
}

func TestWire_MalformedWordsAreNoWords(t *testing.T) {
	path := func(segments ...byte) []byte {
		return append([]byte{connPath<<3 | 2, byte(len(segments))}, segments...)
	}
	for name, conn := range map[string][]byte{
		"cut in a tag":                {0x80},
		"cut in a length":             {connPath<<3 | 2, 0x80},
		"a length past the end":       {connPath<<3 | 2, 5, 0},
		"a number past the end":       {connState << 3, 0x80},
		"a path that is none":         path(0x80),
		"our segment is none":         path(pathSegments<<3|2, 0, pathSegments<<3|2, 1, 0x80),
		"a segment behind us is none": path(pathSegments<<3|2, 0, pathSegments<<3|2, 0, pathSegments<<3|2, 1, 0x80),
		"a context that is none":      {connContext<<3 | 2, 1, 0x80},
	} {
		_, err := placeOf(ourConn()).look(conn)
		require.ErrorIs(t, err, errEncoding, name)
	}
	for name, event := range map[string]frame{
		"cut":                     {0x80},
		"a connection that is no": {eventConnections<<3 | 2, 1, 0x80},
	} {
		_, err := parse(event)
		require.ErrorIs(t, err, errEncoding, name)
	}
}

func TestParse(t *testing.T) {
	sent := &networkservice.ConnectionEvent{
		Type:        networkservice.ConnectionEventType_DELETE,
		Connections: map[string]*networkservice.Connection{"a": {Id: "a"}, "b": {Id: "b"}, "none": {}},
	}
	said, err := parse(encoded(t, sent))
	require.NoError(t, err)
	require.Equal(t, sent.GetType(), said.kind)
	got := make(map[string]*networkservice.Connection)
	for _, raw := range said.conns {
		conn := new(networkservice.Connection)
		require.NoError(t, proto.Unmarshal(raw, conn))
		got[conn.GetId()] = conn
	}
	require.Len(t, got, 3)
	empty, err := parse(nil)
	require.NoError(t, err)
	require.Equal(t, networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, empty.kind)
	require.Empty(t, empty.conns)
}

func TestTold_ComesOutOfAnEventAsItWasKept(t *testing.T) {
	conn := rich()
	for _, id := range []string{"", "short", fmt.Sprint(make([]byte, 300))} {
		conn.Id = id
		kept := toldOf(conn)
		require.True(t, proto.Equal(conn, kept.Unpack()))
		for _, kind := range []networkservice.ConnectionEventType{
			networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, networkservice.ConnectionEventType_UPDATE, networkservice.ConnectionEventType_DELETE,
		} {
			require.True(t, proto.Equal(eventOf(kind, conn), received(kept.event(kind))))
		}
		require.Equal(t, kept.Size(), proto.Size(conn))
	}
	conn.NetworkService = "\xff"
	kept := toldOf(conn)
	require.Equal(t, "\xff", kept.event(networkservice.ConnectionEventType_UPDATE).GetConnections()[conn.GetId()].GetNetworkService())
}

// FuzzLook holds a look at what came against the API's decoder: they see the same, and
// where that one refuses a message, so does whoever needs more than a look.
func FuzzLook(f *testing.F) {
	known := []*networkservice.Connection{farConn(), rich(), {}, {State: networkservice.State_DOWN}}
	for _, conn := range known {
		f.Add(encoded(f, conn))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := placeOf(ourConn())
		v, err := p.look(raw)
		conn := new(networkservice.Connection)
		decoded := proto.Unmarshal(raw, conn)
		if err != nil {
			require.True(t, decoded != nil || errors.Is(err, errUnusual), "%v", err)
			return
		}
		if decoded != nil {
			w := &word{raw: raw}
			_, err := w.decode()
			require.Error(t, err)
			return
		}
		require.Equal(t, conn.GetState(), v.state)
		require.Equal(t, seenBy(p, conn), v.ours)
		again, err := p.look(toldOf(conn).Encoded())
		require.NoError(t, err)
		require.Equal(t, v.ours, again.ours)
		require.Equal(t, v.state, again.state)
		for _, other := range known {
			if v.digest == digestOf(t, other) {
				require.Equal(t, essential(other), essential(conn))
			}
		}
	})
}

// essential is what a digest stands for, as text.
func essential(conn *networkservice.Connection) string {
	segments := conn.GetPath().GetPathSegments()
	behind := &networkservice.Connection{
		Context: conn.GetContext(), Path: &networkservice.Path{PathSegments: segments[min(2, len(segments)):]},
	}
	block, _ := proto.MarshalOptions{Deterministic: true}.Marshal(behind)
	return string(block)
}

// seenBy is what a look tells of a connection that has been decoded.
func seenBy(p place, conn *networkservice.Connection) (ours bool) {
	segments := conn.GetPath().GetPathSegments()
	if int(p.index) >= len(segments) || segments[p.index].GetId() != p.id {
		return false
	}
	return conn.GetPath().GetIndex() == p.index || conn.GetPath().GetIndex() == p.index+1
}

// BenchmarkWord is the far side's report of an answer, held against what is known: as it
// came, and decoded as it once was.
func BenchmarkWord(b *testing.B) {
	raw := encoded(b, rich())
	p := placeOf(ourConn())
	for name, do := range map[string]func() error{
		"looked at": func() error { _, err := p.word(networkservice.ConnectionEventType_UPDATE, raw); return err },
		"decoded":   func() error { _, err := (&word{raw: raw}).decode(); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

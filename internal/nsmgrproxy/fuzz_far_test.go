package nsmgrproxy_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

// ownID stands for the id of the proxy's segment in what a far side sends: the id is
// drawn anew in each run, and as long as this.
const ownID = "proxy----0000-0000-0000-000000000000"

// lie is the codec of a far side that sends other bytes, once, in the place of the
// next answer or event.
type lie struct {
	encoding.CodecV2

	mu            sync.Mutex
	answer, event []byte
}

func newLie() *lie { return &lie{CodecV2: encoding.GetCodecV2(grpcproto.Name)} }

func (l *lie) Marshal(v any) (mem.BufferSlice, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := &l.event
	id := ""
	switch m := v.(type) {
	case *networkservice.Connection:
		said, id = &l.answer, m.GetId()
	case *networkservice.ConnectionEvent:
		for _, conn := range m.GetConnections() {
			id = conn.GetPrevPathSegment().GetId()
		}
	default:
		return l.CodecV2.Marshal(v)
	}
	if *said == nil {
		return l.CodecV2.Marshal(v)
	}
	raw := bytes.ReplaceAll(*said, []byte(ownID), []byte(id))
	*said = nil
	return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
}

// set has raw sent in the place of the next answer, or of the next event.
func (l *lie) set(which *[]byte, raw []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*which = append([]byte{}, raw...)
}

// lyingFar serves the far side with that codec, at an address of its own.
func (w *world) lyingFar() (l *lie, stop func()) {
	l = newLie()
	w.remote.set(endpointName, "tcp://"+otherAddr)
	return l, w.serve(otherAddr, w.far.Register, grpc.ForceServerCodecV2(l))
}

// farConn is a connection as the far side has it, or as it answers it.
func farConn(index uint32) *networkservice.Connection {
	conn := newRequest(1).GetConnection()
	expires := timestamppb.New(time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)) // a bubble's clock begins in 2000
	for _, name := range []string{"proxy", "far-4", "far-5"} {
		id := name + "-1"
		if name == "proxy" {
			id = ownID
		}
		conn.Path.PathSegments = append(conn.Path.PathSegments, &networkservice.PathSegment{
			Name: name, Id: id, Token: "a.b.c", Expires: expires,
		})
	}
	conn.Path.Index = index
	conn.Id = conn.GetPath().GetPathSegments()[index].GetId()
	conn.Context = &networkservice.ConnectionContext{IpContext: &networkservice.IPContext{SrcIpAddrs: []string{"172.16.0.2/32"}}}
	return conn
}

// FuzzFarAnswer has the far side answer anything to the first Request. Whatever became
// of that, the next one is served, and what is true then is told.
func FuzzFarAnswer(f *testing.F) {
	down, short, long := farConn(3), farConn(3), farConn(3)
	down.State = networkservice.State_DOWN
	short.Path.PathSegments = short.Path.PathSegments[:4]
	for range 200 {
		long.Path.PathSegments = append(long.Path.PathSegments, &networkservice.PathSegment{Id: "x", Name: "y"})
	}
	seed(f, farConn(3), farConn(4), down, short, long, new(networkservice.Connection),
		&networkservice.Connection{Id: ownID, Path: &networkservice.Path{Index: 1<<32 - 1}})
	f.Fuzz(func(t *testing.T, raw []byte) {
		inBubbleOf(log.WithLog(context.Background(), log.Empty()), t, func(w *world) {
			l, stop := w.lyingFar()
			defer stop()
			panics := guard.Panics()
			l.set(&l.answer, raw)
			next := newRequest(1)
			if conn, err := w.request(newRequest(1)); err == nil {
				next = again(conn)
			}
			time.Sleep(time.Second) // the far side's own word of it has come
			s := w.subscribe(1)
			defer s.end()
			w.well(s, next)
			// What a far side made and answered with a lie, only it knows by its id.
			require.LessOrEqual(w, len(w.far.Conns()), 1)
			require.Equal(w, panics, guard.Panics(), "a panic")
		})
	})
}

// FuzzFarEvent has the far side say anything on its monitor stream, as an event or, with
// a stream resumed, as its initial state. Whatever was made of that, the connection is
// served after it, and what is true then is told.
func FuzzFarEvent(f *testing.F) {
	for _, resumed := range []bool{false, true} {
		for kind, conn := range map[networkservice.ConnectionEventType]*networkservice.Connection{
			networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER: farConn(4),
			networkservice.ConnectionEventType_UPDATE:                 farConn(4),
			networkservice.ConnectionEventType_DELETE:                 farConn(4),
			7: farConn(3),
		} {
			raw := wireOf(f, &networkservice.ConnectionEvent{Type: kind, Connections: map[string]*networkservice.Connection{conn.GetId(): conn}})
			f.Add(raw, resumed)
			f.Add(raw[:len(raw)/2], resumed)
		}
		f.Add(wireOf(f, &networkservice.ConnectionEvent{Connections: map[string]*networkservice.Connection{"": nil}}), resumed)
	}
	f.Fuzz(func(t *testing.T, raw []byte, resumed bool) {
		inBubbleOf(log.WithLog(context.Background(), log.Empty()), t, func(w *world) {
			l, stop := w.lyingFar()
			defer stop()
			panics := guard.Panics()
			s, told := w.watched(1)
			defer s.end()
			l.set(&l.event, raw)
			if resumed {
				w.wire.Cut(otherAddr)
			} else {
				w.far.Say(func(*networkservice.Connection) {})
			}
			time.Sleep(3 * time.Second)
			s.next()
			w.well(s, again(told))
			require.Empty(w, w.far.Conns(), "nothing is left")
			require.Equal(w, panics, guard.Panics(), "a panic")
		})
	})
}

// well requires that a Request is served, that the far side's next word is what the
// subscriber knows then, and that the connection can be closed.
func (w *world) well(s *subscriber, r *networkservice.NetworkServiceRequest) {
	w.Helper()
	conn, err := w.request(r)
	require.NoError(w, err)
	time.Sleep(2 * time.Second)
	s.next()
	w.far.Say(setState(networkservice.State_DOWN))
	s.down()
	conn, err = w.request(again(conn))
	require.NoError(w, err)
	s.up()
	require.NoError(w, w.close(conn))
	s.one(networkservice.ConnectionEventType_DELETE, networkservice.State_UP)
}

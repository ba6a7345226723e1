package monitor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// fakeStream is a subscriber's end of a stream. It takes events while open, and
// blocks otherwise.
type fakeStream struct {
	grpc.ServerStream
	ctx    context.Context
	events chan *networkservice.ConnectionEvent
}

// received is an event as it comes out at the other end.
func received(sent *networkservice.ConnectionEvent) *networkservice.ConnectionEvent {
	raw, err := proto.Marshal(sent)
	event := new(networkservice.ConnectionEvent)
	if err != nil || proto.Unmarshal(raw, event) != nil {
		panic("an event that cannot be sent")
	}
	return event
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) Send(event *networkservice.ConnectionEvent) error {
	select {
	case s.events <- received(event):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

type joined struct {
	*fakeStream
	leave context.CancelFunc
	err   chan error
}

func join(table *Table, selector *networkservice.MonitorScopeSelector, buffer int) *joined {
	ctx, cancel := context.WithCancel(context.Background())
	j := &joined{
		fakeStream: &fakeStream{ctx: ctx, events: make(chan *networkservice.ConnectionEvent, buffer)},
		leave:      cancel, err: make(chan error, 1),
	}
	go func() { j.err <- table.MonitorConnections(selector, j) }()
	synctest.Wait()
	return j
}

// byHand is a subscriber to whom nothing is sent: the test takes what is queued.
func byHand(selector *networkservice.MonitorScopeSelector, id string) *subscriber {
	s := newSubscriber(selector, id, nil)
	s.begin()
	return s
}

func byID(id string) *networkservice.MonitorScopeSelector {
	return &networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: id}}}
}

// numbered is the connection of that number, at place 1 of its path.
func numbered(n int) *networkservice.Connection {
	return &networkservice.Connection{
		Id: fmt.Sprintf("ours-%d", n), NetworkService: "service",
		Path: &networkservice.Path{Index: 1, PathSegments: []*networkservice.PathSegment{
			{Name: "before", Id: fmt.Sprintf("before-%d", n)}, {Name: "us", Id: fmt.Sprintf("ours-%d", n)},
			{Name: "behind", Id: fmt.Sprintf("behind-%d", n)},
		}},
	}
}

func (t *Table) establish(n int) { t.answer(numbered(n)) }

// answer has a Request answered with the connection.
func (t *Table) answer(conn *networkservice.Connection) *entry {
	e := t.begin(conn.GetId())
	t.answered(e, conn, "", false)
	return e
}

func inTable(t *testing.T, f func(t *testing.T, table *Table)) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		defer wg.Wait()
		defer cancel()
		f(t, NewTable(ctx, &wg))
	})
}

func TestSubscriber_SelectsAsTheAPIDoes(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		table.establish(1)
		table.establish(2)
		for name, c := range map[string]struct {
			selector *networkservice.MonitorScopeSelector
			want     []string
		}{
			"nothing selects all":      {nil, []string{"ours-1", "ours-2"}},
			"id before us":             {byID("before-1"), []string{"ours-1"}},
			"our id":                   {byID("ours-2"), []string{"ours-2"}},
			"id behind us":             {byID("behind-2"), []string{"ours-2"}},
			"unknown id":               {byID("nobody"), nil},
			"name alone":               {&networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Name: "us"}}}, []string{"ours-1", "ours-2"}},
			"id with another's name":   {&networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: "before-1", Name: "us"}}}, nil},
			"two segments in a row":    {&networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: "before-1"}, {Name: "us"}}}, []string{"ours-1"}},
			"another network service":  {&networkservice.MonitorScopeSelector{NetworkServices: []string{"other"}}, nil},
			"the network service":      {&networkservice.MonitorScopeSelector{NetworkServices: []string{"service"}}, []string{"ours-1", "ours-2"}},
			"service and another's id": {&networkservice.MonitorScopeSelector{NetworkServices: []string{"other"}, PathSegments: []*networkservice.PathSegment{{Id: "ours-1"}}}, nil},
		} {
			j := join(table, c.selector, 8)
			initial := <-j.events
			require.Equal(t, networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, initial.GetType())
			var got []string
			for id := range initial.GetConnections() {
				got = append(got, id)
			}
			require.ElementsMatch(t, c.want, got, name)

			table.establish(1)
			table.establish(2)
			synctest.Wait()
			require.Len(t, j.events, len(c.want), "%s: and of events the same", name)
			j.leave()
			<-j.err
		}
		require.Empty(t, table.subscribers.byID, "one that left is forgotten")
		require.Empty(t, table.subscribers.rest)
	})
}

func TestSubscriber_OneThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		deaf := join(table, byID("before-1"), 0)
		other := join(table, byID("before-1"), 10*backlog)
		began := time.Now()
		for range 2 * backlog {
			table.establish(1)
			synctest.Wait() // the other one reads, the deaf one never does
		}
		require.Zero(t, time.Since(began), "nobody waited")
		require.Len(t, other.events, 2*backlog+1)
		select {
		case err := <-deaf.err:
			require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
		default:
			t.Fatal("the deaf one's stream has not ended")
		}
		deaf.leave() // as gRPC does when the handler has returned
		other.leave()
		<-other.err
		synctest.Wait()
	})
}

func TestSubscriber_OneThatDoesNotReadKeepsLittle(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		deaf := join(table, byID("before-1"), 0)
		conn := numbered(1)
		conn.NetworkService = strings.Repeat("x", maxWaiting/8)
		for range 8 {
			table.answered(table.begin(conn.GetId()), conn, "", false)
			synctest.Wait()
		}
		require.Equal(t, codes.ResourceExhausted, status.Code(<-deaf.err), "long before its queue is full")
		deaf.leave()
	})
}

func TestSubscriber_ShortStallLosesNothing(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		slow := join(table, byID("before-1"), 0)
		for range backlog {
			table.establish(1)
		}
		for range backlog + 1 { // the initial state too
			<-slow.events
		}
		synctest.Wait()
		require.Empty(t, slow.events)
		slow.leave()
		<-slow.err
	})
}

func TestSubscriber_WhatCannotBeSentEndsTheStream(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		send func(*networkservice.ConnectionEvent) error
		want error
	}{
		"an error": {func(*networkservice.ConnectionEvent) error { return broken }, broken},
		"a panic":  {func(*networkservice.ConnectionEvent) error { panic("of the test") }, errUnsent},
	} {
		t.Run(name, func(t *testing.T) {
			inTable(t, func(t *testing.T, table *Table) {
				s := newSubscriber(nil, "", c.send)
				require.True(t, s.begin())
				require.False(t, s.put(new(networkservice.ConnectionEvent), 1, 8), "somebody has been sent for")
				table.pump(s)
				require.ErrorIs(t, s.wait(t.Context(), t.Context()), c.want)
				require.False(t, s.put(new(networkservice.ConnectionEvent), 1, 1), "nobody is sent for any more")
				require.Empty(t, s.queue)
			})
		})
	}
}

// The events of one subscriber are sent one after the other, whoever sends them.
func TestSubscriber_OneSendAtATime(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		var inside, sent atomic.Int32
		s := newSubscriber(nil, "", func(*networkservice.ConnectionEvent) error {
			defer inside.Add(-1)
			if inside.Add(1) != 1 {
				return errors.New("two at a time")
			}
			sent.Add(1)
			runtime.Gosched()
			return nil
		})
		require.True(t, table.join(s))
		require.True(t, s.begin())
		table.pump(s)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range backlog / 10 {
					table.establish(1)
					runtime.Gosched()
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		require.NoError(t, s.err)
		require.EqualValues(t, 1+backlog/10*10, sent.Load())
	})
}

func TestTable_EndsEveryStreamWithUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		table := NewTable(ctx, &wg)
		var streams []*joined
		for range 1000 {
			streams = append(streams, join(table, nil, 1))
		}
		cancel()
		wg.Wait()
		for _, j := range streams {
			require.Equal(t, codes.Unavailable, status.Code(<-j.err))
			j.leave()
		}
		late := join(table, nil, 1)
		require.Equal(t, codes.Unavailable, status.Code(<-late.err), "none is taken any more")
		late.leave()
	})
}

func TestTable_ForgetsWhatHasEnded(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		for n := range 100 {
			table.establish(n)
			table.unwatch(numbered(n).GetId())
			table.deleted(numbered(n).GetId(), "", numbered(n))
			table.failed(numbered(n).GetId(), table.begin(numbered(n).GetId()))
		}
		require.Empty(t, table.legs)
		require.Empty(t, table.behind)
	})
}

func TestSubscriber_OnlyThePreviousHopSeesTokens(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		conn := numbered(1)
		for _, segment := range conn.GetPath().GetPathSegments() {
			segment.Token = "secret"
		}
		table.answered(table.begin(conn.GetId()), conn, "spiffe://a/forwarder", false)
		for id, want := range map[string]string{"spiffe://a/forwarder": "secret", "spiffe://b/other": "", "": ""} {
			sub := byHand(nil, id)
			require.True(t, table.join(sub))
			table.answered(table.begin(conn.GetId()), conn.Clone(), "spiffe://a/forwarder", false)
			table.deleted(conn.GetId(), "spiffe://a/forwarder", conn)
			for _, kind := range []string{"initial state", "UPDATE", "DELETE"} {
				told := received(sub.next()).GetConnections()[conn.GetId()]
				require.NotNil(t, told, kind)
				for _, segment := range told.GetPath().GetPathSegments() {
					require.Equal(t, want, segment.GetToken(), "%s to %q", kind, id)
				}
			}
			table.part(sub)
			table.answered(table.begin(conn.GetId()), conn, "spiffe://a/forwarder", false)
		}
		require.Equal(t, "secret", conn.GetPath().GetPathSegments()[0].GetToken(), "what is known is not changed")
	})
}

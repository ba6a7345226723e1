package nsmgrproxy_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// subscriber is a neighbour's monitor stream and what came on it.
type subscriber struct {
	*testing.T
	mu     sync.Mutex
	events []*networkservice.ConnectionEvent
	err    error
	// initial is the state that it was told when it joined.
	initial map[string]*networkservice.Connection
	leave   context.CancelFunc
	done    chan struct{}
}

// subscribe joins as the forwarder of the connection of that number does.
func (w *world) subscribe(n int) *subscriber {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := networkservice.NewMonitorConnectionClient(w.cc).MonitorConnections(ctx, selectorOf(n))
	require.NoError(w, err)
	s := &subscriber{T: w.T, leave: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			event, err := stream.Recv()
			s.mu.Lock()
			s.err = err
			if err == nil {
				s.events = append(s.events, event)
			}
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	synctest.Wait()
	first := s.next()
	require.Len(w, first, 1, "a stream begins with an initial state")
	require.Equal(w, networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, first[0].GetType())
	s.initial = first[0].GetConnections()
	return s
}

// selectorOf selects as the forwarder of the connection of that number does.
func selectorOf(n int) *networkservice.MonitorScopeSelector {
	return &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Name: "forwarder", Id: fmt.Sprintf("forwarder-%d", n)}},
	}
}

// next returns what came since the last call, once everything is at rest.
func (s *subscriber) next() []*networkservice.ConnectionEvent {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

func (s *subscriber) nothing(why string) {
	s.Helper()
	require.Empty(s, s.next(), why)
}

// one requires exactly one event of that kind and state, and returns its
// connection.
func (s *subscriber) one(kind networkservice.ConnectionEventType, state networkservice.State) *networkservice.Connection {
	s.Helper()
	events := s.next()
	require.Len(s, events, 1)
	require.Equal(s, kind, events[0].GetType())
	require.Len(s, events[0].GetConnections(), 1)
	for id, conn := range events[0].GetConnections() {
		// The shape of an event: key, id and place are the sender's own.
		require.Equal(s, id, conn.GetId())
		require.Equal(s, id, conn.GetCurrentPathSegment().GetId())
		require.Equal(s, "proxy", conn.GetCurrentPathSegment().GetName())
		require.EqualValues(s, 3, conn.GetPath().GetIndex())
		require.Equal(s, endpointName, conn.GetNetworkServiceEndpointName())
		require.Equal(s, state, conn.GetState())
		return conn
	}
	return nil
}

func (s *subscriber) up() *networkservice.Connection {
	s.Helper()
	return s.one(networkservice.ConnectionEventType_UPDATE, networkservice.State_UP)
}

func (s *subscriber) down() *networkservice.Connection {
	s.Helper()
	return s.one(networkservice.ConnectionEventType_UPDATE, networkservice.State_DOWN)
}

// states requires that these are what came, in order.
func (s *subscriber) states(want ...string) {
	s.Helper()
	var got []string
	for _, event := range s.next() {
		for _, conn := range event.GetConnections() {
			got = append(got, stateIn(event.GetType(), conn))
		}
	}
	require.Equal(s, want, got)
}

// stateIn is what an event says of a connection.
func stateIn(kind networkservice.ConnectionEventType, conn *networkservice.Connection) string {
	if kind == networkservice.ConnectionEventType_DELETE {
		return "DELETE"
	}
	return conn.GetState().String()
}

// end leaves and waits for the stream's end.
func (s *subscriber) end() {
	s.leave()
	<-s.done
}

// deaf is a subscriber that joins and does not read.
func (w *world) deaf(n int) networkservice.MonitorConnection_MonitorConnectionsClient {
	w.Helper()
	stream, err := networkservice.NewMonitorConnectionClient(w.cc).MonitorConnections(w.Context(), selectorOf(n))
	require.NoError(w, err)
	synctest.Wait()
	return stream
}

// lastError reads a stream to its end.
func lastError(stream networkservice.MonitorConnection_MonitorConnectionsClient) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

func TestSubscriber_OneThatDoesNotReadLosesItsOwnStreamAlone(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		deaf := w.deaf(1)
		for range 600 { // gRPC's windows take some of them
			began := time.Now()
			refreshed, err := w.request(again(conn))
			require.NoError(w, err)
			conn = refreshed
			s.up()
			require.LessOrEqual(w, time.Since(began), 100*time.Millisecond, "nobody is held up")
		}
		err := lastError(deaf)
		require.Equal(w, codes.ResourceExhausted, status.Code(err), "%v", err)
		require.Equal(w, 1, nsmgrproxy.HeldBy(w.chain).Subscribers, "and is forgotten")

		back := w.subscribe(1)
		defer back.end()
		require.Len(w, back.initial, 1, "it learns the state anew")
		w.far.Say(setState(networkservice.State_DOWN))
		s.down()
		back.down()
	})
}

package nsmgrproxy_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
)

// subscriber is a neighbour's monitor stream and what came on it.
type subscriber struct {
	*testing.T
	mu     sync.Mutex
	events []*networkservice.ConnectionEvent
	err    error
	leave  context.CancelFunc
	done   chan struct{}
}

// subscribe joins as the forwarder of the connection of that number does.
func (w *world) subscribe(n int) *subscriber {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := networkservice.NewMonitorConnectionClient(w.cc).MonitorConnections(ctx, &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Name: "forwarder", Id: fmt.Sprintf("forwarder-%d", n)}},
	})
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
	return s
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

// end leaves and waits for the stream's end.
func (s *subscriber) end() {
	s.leave()
	<-s.done
}

package mixed

import (
	"context"
	"slices"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// What an event says.
const (
	up     = "UP"
	down   = "DOWN"
	gone   = "DELETE"
	begins = "BEGIN" // an initial state
)

// subscriber is the forwarder's monitor stream and what came on it.
type subscriber struct {
	leave context.CancelFunc
	done  chan struct{}

	mu     sync.Mutex
	events []string // guarded by mu
	err    error    // guarded by mu
}

// subscribe joins as the forwarder of the connection does, and returns when it is
// known to the proxy.
func (c *connection) subscribe() *subscriber {
	c.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := networkservice.NewMonitorConnectionClient(c.cc).MonitorConnections(ctx, &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Name: "forwarder", Id: c.id}},
	}, grpc.WaitForReady(true))
	require.NoError(c, err)
	s := &subscriber{leave: cancel, done: make(chan struct{})}
	go s.listen(stream, c.proxy.name)
	c.eventually(func() bool { return s.count() > 0 }, "an initial state")
	// A refresh may have got in behind it, if the connection is being refreshed.
	require.Equal(c, begins, s.first())
	return s
}

func (s *subscriber) listen(stream networkservice.MonitorConnection_MonitorConnectionsClient, proxy string) {
	defer close(s.done)
	for {
		event, err := stream.Recv()
		s.mu.Lock()
		if err == nil {
			s.events = append(s.events, wordOf(event, proxy))
		}
		s.err = err
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// wordOf is what an event says, or what is wrong with its shape: stock neighbours
// drop an event whose key, id and place are not the sender's own.
func wordOf(event *networkservice.ConnectionEvent, proxy string) string {
	if event.GetType() == networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER {
		return begins
	}
	for key, conn := range event.GetConnections() {
		segment := conn.GetCurrentPathSegment()
		switch {
		case len(event.GetConnections()) != 1, key != conn.GetId(), key != segment.GetId(),
			segment.GetName() != proxy, conn.GetPath().GetIndex() != outboundIndex:
			return "odd event: " + event.String()
		case event.GetType() == networkservice.ConnectionEventType_DELETE:
			return gone
		default:
			return conn.GetState().String()
		}
	}
	return "event without connection"
}

func (s *subscriber) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events)
}

// peek returns what came, and leaves it.
func (s *subscriber) peek() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

func (s *subscriber) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

// first takes the first event out of what came.
func (s *subscriber) first() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	event := s.events[0]
	s.events = s.events[1:]
	return event
}

// ended returns why the stream has ended, nil if it has not.
func (s *subscriber) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *subscriber) end() {
	s.leave()
	<-s.done
}

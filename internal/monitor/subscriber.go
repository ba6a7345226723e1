package monitor

import (
	"context"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/packed"
)

// backlog is how many events a subscriber may lag behind, beyond one for each
// connection that the table knows: a storm that touches every leg once is not
// its fault, and a slow reader's queue stays small.
const backlog = 128

// maxWaiting is how much of what waits for one subscriber may be, in bytes as on the
// wire: a change of two thousand connections of the usual 4 KiB. How large one is, is
// the far side's to choose.
const maxWaiting = 8 << 20

// subscriber is one MonitorConnections stream. Events are queued by the table
// and sent by the stream's own goroutine, so one that does not read holds nobody
// up: when its queue is full, its stream ends with ResourceExhausted, and it
// learns the state anew when it comes back.
type subscriber struct {
	selector *networkservice.MonitorScopeSelector
	// id is the SPIFFE ID of who reads it, empty without TLS.
	id string
	// known is what it may have asked for, as it was when it joined, until greeted
	// is set. Both belong to the stream's goroutine.
	known   []known
	greeted bool
	// leave gives back the turn of who selects widely, when known is not held any more.
	leave func()

	// mu guards the three following fields.
	mu       sync.Mutex
	queue    []waiting
	bytes    int // in the queue
	overflow bool
	// ready has a token while there is something to look at.
	ready chan struct{}
}

func newSubscriber(selector *networkservice.MonitorScopeSelector, id string) *subscriber {
	return &subscriber{selector: selector, id: id, leave: func() {}, ready: make(chan struct{}, 1)}
}

// waiting is one event in a queue.
type waiting struct {
	event *networkservice.ConnectionEvent
	size  int
}

// known is one leg's part of an initial state.
type known struct {
	told    packed.Message[*networkservice.Connection]
	mayRead bool
}

// initial makes the initial state, on the subscriber's own time: who selects
// widely has thousands of legs unpacked.
func (s *subscriber) initial() *networkservice.ConnectionEvent {
	state := make(map[string]*networkservice.Connection)
	id := keyOf(s.selector)
	if id != "" {
		// As it stands in a message: an id of one letter is in every other string.
		id = string(protowire.AppendString(nil, id))
	}
	for _, k := range s.known {
		if !k.told.Contains(id) {
			continue // of thousands that do not have the one id
		}
		told := k.told.Unpack()
		switch {
		case !s.wants(told):
		case k.mayRead:
			state[told.GetId()] = told
		default:
			state[told.GetId()] = bare(told)
		}
	}
	s.known = nil
	s.leave()
	return &networkservice.ConnectionEvent{
		Type:        networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER,
		Connections: state,
	}
}

// wants tells whether the subscriber has asked for the connection.
func (s *subscriber) wants(conn *networkservice.Connection) bool {
	return conn.MatchesMonitorScopeSelector(s.selector)
}

// put queues an event of that size. It never waits.
func (s *subscriber) put(event *networkservice.ConnectionEvent, size, limit int) {
	s.mu.Lock()
	if len(s.queue) >= limit || s.bytes+size > maxWaiting {
		s.overflow = true
		s.queue, s.bytes = nil, 0
	}
	if !s.overflow {
		s.queue = append(s.queue, waiting{event: event, size: size})
		s.bytes += size
	}
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// next returns the initial state, then takes the oldest event out of the queue, or
// nil.
func (s *subscriber) next() *networkservice.ConnectionEvent {
	if !s.greeted {
		s.greeted = true
		return s.initial()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	first := s.queue[0]
	s.queue[0] = waiting{}
	s.queue = s.queue[1:]
	s.bytes -= first.size
	return first.event
}

// serve sends what is queued until the subscriber leaves, lags too far behind or
// the proxy ends. The status says which.
//
// A Send to somebody who does not read cannot be interrupted, so it runs beside
// the loop; it ends with the stream, at the latest when serve has returned.
func (s *subscriber) serve(ctx, chainCtx context.Context, send func(*networkservice.ConnectionEvent) error) error {
	sent := make(chan error, 1)
	sending := false
	for {
		if !sending {
			if event := s.next(); event != nil {
				sending = true
				go func() { sent <- send(event) }()
			}
		}
		if s.overflowed() {
			return status.Error(codes.ResourceExhausted, "nsmgr-proxy: subscriber reads too slowly")
		}
		select {
		case <-chainCtx.Done():
			// Said explicitly: a handler that returns nil ends the stream with
			// EOF, its context's error with Canceled, and Canceled stops the
			// SDK's heal for good.
			return status.Error(codes.Unavailable, "nsmgr-proxy: shutting down")
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case err := <-sent:
			if err != nil {
				return err
			}
			sending = false
		case <-s.ready:
		}
	}
}

func (s *subscriber) overflowed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overflow
}

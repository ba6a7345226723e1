package monitor

import (
	"bytes"
	"context"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// backlog is how many events a subscriber may lag behind, beyond one for each
// connection that the table knows: a storm that touches every leg once is not
// its fault, and a slow reader's queue stays small.
const backlog = 128

// maxWaiting is how much of what waits for one subscriber may be, in bytes as on the
// wire: a change of two thousand connections of the usual 4 KiB. How large one is, is
// the far side's to choose.
const maxWaiting = 8 << 20

// subscriber is one MonitorConnections stream. Events are queued by the table and sent by
// a goroutine of its pool, which goes when there are no more: the stream's own only waits
// for the end, on a small stack. One that does not read holds nobody up: when its queue is
// full, its stream ends with ResourceExhausted, and it learns the state anew when it comes
// back.
type subscriber struct {
	selector *networkservice.MonitorScopeSelector
	// id is the SPIFFE ID of who reads it, empty without TLS.
	id string
	// send sends one event. To somebody who does not read it ends with the stream.
	send func(*networkservice.ConnectionEvent) error
	// known is what it may have asked for, as it was when it joined, until greeted
	// is set. Both belong to who sends.
	known   []known
	greeted bool
	// leave gives back the turn of who selects widely. Who sends does, when known is not
	// held any more: also if the subscriber has left by then.
	leave func()

	// mu guards the four following fields.
	mu      sync.Mutex
	queue   []waiting
	bytes   int   // in the queue
	sending bool  // somebody sends, and looks into the queue before he goes
	err     error // why there is nothing more to be sent
	// failed is closed when err is set.
	failed chan struct{}
}

func newSubscriber(selector *networkservice.MonitorScopeSelector, id string, send func(*networkservice.ConnectionEvent) error) *subscriber {
	return &subscriber{selector: selector, id: id, send: send, leave: func() {}, failed: make(chan struct{})}
}

// waiting is one event in a queue.
type waiting struct {
	event *networkservice.ConnectionEvent
	size  int
}

// known is one leg's part of an initial state.
type known struct {
	told    told
	mayRead bool
}

// initial makes the initial state, on the subscriber's own time: who selects
// widely has thousands of legs unpacked.
func (s *subscriber) initial() *networkservice.ConnectionEvent {
	state := &networkservice.ConnectionEvent{Type: networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER}
	state.Connections = make(map[string]*networkservice.Connection)
	id := keyOf(s.selector)
	if id != "" {
		// As it stands in a message: an id of one letter is in every other string.
		id = string(protowire.AppendString(nil, id))
	}
	var parts [][]byte
	for _, k := range s.known {
		if !k.told.Contains(id) {
			continue // of thousands that do not have the one id
		}
		switch told := k.told.Unpack(); {
		case !s.wants(told):
		case !k.mayRead:
			state.Connections[told.GetId()] = bare(told)
		case k.told.part == nil:
			state.Connections[told.GetId()] = told
		default:
			parts = append(parts, k.told.part)
		}
	}
	if len(parts) == 1 {
		state.ProtoReflect().SetUnknown(parts[0])
	} else {
		state.ProtoReflect().SetUnknown(bytes.Join(parts, nil))
	}
	return state
}

// wants tells whether the subscriber has asked for the connection.
func (s *subscriber) wants(conn *networkservice.Connection) bool {
	return conn.MatchesMonitorScopeSelector(s.selector)
}

// put queues an event of that size. It never waits. It returns true if somebody has to be
// sent for, who sends.
func (s *subscriber) put(event *networkservice.ConnectionEvent, size, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	if len(s.queue) >= limit || s.bytes+size > maxWaiting {
		s.fail(status.Error(codes.ResourceExhausted, "nsmgr-proxy: subscriber reads too slowly"))
		return false
	}
	s.queue = append(s.queue, waiting{event: event, size: size})
	s.bytes += size
	return s.claim()
}

// claim makes the caller the one who sends, unless somebody does. The caller holds mu.
func (s *subscriber) claim() bool {
	if s.sending || s.err != nil {
		return false
	}
	s.sending = true
	return true
}

// begin is claim for the initial state.
func (s *subscriber) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claim()
}

// fail ends the stream. The caller holds mu.
func (s *subscriber) fail(err error) {
	if s.err == nil {
		s.err = err
		close(s.failed)
	}
	s.queue, s.bytes = nil, 0
}

// next returns the initial state, then takes the oldest event out of the queue. When there
// is none it returns nil, and the caller is not the one who sends any more.
func (s *subscriber) next() *networkservice.ConnectionEvent {
	if !s.greeted {
		s.greeted = true
		defer s.forget()
		if !s.over() {
			return s.initial()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue, s.sending = nil, false
		return nil
	}
	first := s.queue[0]
	s.queue[0] = waiting{}
	s.queue = s.queue[1:]
	s.bytes -= first.size
	return first.event
}

// forget drops what the initial state was made from.
func (s *subscriber) forget() {
	s.known = nil
	s.leave()
}

// over tells whether nothing more is to be sent.
func (s *subscriber) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// errUnsent is what is left of a Send that panicked.
var errUnsent = status.Error(codes.Internal, "nsmgr-proxy: an event could not be sent")

// pump sends what there is, for who has been made the one who sends.
func (s *subscriber) pump() {
	err := errUnsent
	defer func() {
		if err != nil {
			s.end(err)
		}
	}()
	for event := s.next(); event != nil; event = s.next() {
		if err = s.send(event); err != nil {
			return
		}
		err = errUnsent
	}
	err = nil
}

// wait returns when the subscriber has left, or lags too far behind, or the proxy ends.
// The status says which. Nothing more is sent then.
func (s *subscriber) wait(ctx, chainCtx context.Context) error {
	select {
	case <-chainCtx.Done():
		// Said explicitly: a handler that returns nil ends the stream with
		// EOF, its context's error with Canceled, and Canceled stops the
		// SDK's heal for good.
		s.end(errShuttingDown)
	case <-ctx.Done():
		s.end(status.FromContextError(ctx.Err()).Err())
	case <-s.failed:
	}
	return s.err
}

// end is fail for who does not hold mu.
func (s *subscriber) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(err)
}

var errShuttingDown = status.Error(codes.Unavailable, "nsmgr-proxy: shutting down")

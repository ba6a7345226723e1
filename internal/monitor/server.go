package monitor

import (
	"context"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

type server struct {
	table *Table
	grace func(ctx context.Context) time.Duration
}

// NewServer is the element that tells the table of Requests and Closes and has
// each leg watched by a relay. Grace says how long a loss on the current leg is
// kept from the subscribers; it is asked when the leg's first Request, or its
// move to another hop, has succeeded.
func NewServer(t *Table, grace func(ctx context.Context) time.Duration) networkservice.NetworkServiceServer {
	return &server{table: t, grace: grace}
}

func (s *server) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	id := request.GetConnection().GetId()
	e := s.table.begin(id)
	withStopgap := leg.WithStopgap(ctx, func() bool { return s.hasStopgap(ctx, e) })
	conn, err := next.Server(ctx).Request(withStopgap, request)
	if err != nil {
		s.table.failed(id, e)
		if conn := s.stopgap(ctx, e, request, err); conn != nil {
			return conn, nil
		}
		return nil, err
	}
	told := conn.Clone()
	told.State = networkservice.State_UP
	s.table.answered(e, told, leg.InPlace(ctx))
	s.watch(ctx, e, told)
	return conn, nil
}

// watch keeps the relay of a leg that stays on its hop, and replaces it when the
// leg has moved.
func (s *server) watch(ctx context.Context, e *entry, told *networkservice.Connection) {
	upstream := hop.FromLeg(ctx)
	if upstream == nil {
		return
	}
	s.table.mu.Lock()
	old := e.relay
	s.table.mu.Unlock()
	if old != nil && old.hop.Same(upstream) {
		old.answered()
		return
	}
	s.table.replace(e, newRelay(s.table, e, leg.FromContext(ctx), upstream.Retain(), told, s.grace(ctx)))
}

func (s *server) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	id := conn.GetId()
	s.table.unwatch(id)
	closed := conn.Clone()
	empty, err := next.Server(ctx).Close(ctx, conn)
	if !leg.Reselecting(ctx) {
		s.table.deleted(id, closed)
	}
	return empty, err
}

// begin notes that a Request of the leg is in flight.
func (t *Table) begin(id string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.legs[id]
	if !ok {
		e = new(entry)
		t.legs[id] = e
	}
	e.inFlight = true
	return e
}

// failed lets go what was held. A leg that had not been there before, or whose
// old one was closed for a new selection, is gone.
func (t *Table) failed(id string, e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.inFlight = false
	switch {
	case e.told == nil:
		delete(t.legs, id)
	case e.relay == nil:
		t.remove(id, e)
	default:
		e.stopDoubt()
		t.release(e)
	}
}

// answered tells the answer. An answer to our own re-request is told only if it
// brings something that the subscribers did not know.
func (t *Table) answered(e *entry, told *networkservice.Connection, inPlace bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.inFlight, e.owed = false, false
	e.lost = time.Time{}
	known := inPlace && e.told != nil && e.told.GetState() == told.GetState() &&
		proto.Equal(e.told.GetContext(), told.GetContext()) && samePath(e.told.GetPath(), told.GetPath())
	if known {
		t.know(e, told)
	} else {
		t.tell(e, told)
	}
	t.settle(e)
}

// replace puts a new relay in the place of the old one, which is not listened to
// from here on.
func (t *Table) replace(e *entry, r *relay) {
	t.mu.Lock()
	old := e.relay
	e.relay = r
	if t.done {
		t.mu.Unlock()
		r.hop.Release()
		return
	}
	ctx, cancel := context.WithCancel(t.ctx)
	r.cancel = cancel
	t.wg.Go(func() { r.run(ctx) })
	t.mu.Unlock()
	if old != nil {
		old.stop()
	}
}

// unwatch stops the relay before a Close: what the far side says of its own
// ending is not news.
func (t *Table) unwatch(id string) {
	t.mu.Lock()
	e := t.legs[id]
	var old *relay
	if e != nil {
		old, e.relay = e.relay, nil
		e.owed = false
		e.stopDoubt()
		e.held = nil
	}
	t.mu.Unlock()
	if old != nil {
		old.stop()
	}
}

// deleted ends what is known of a connection. One that was not known is told as
// the caller knows it: its subscribers may have joined before a restart.
func (t *Table) deleted(id string, closed *networkservice.Connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.legs[id]; ok && e.told != nil {
		t.remove(id, e)
		return
	}
	t.send(networkservice.ConnectionEventType_DELETE, closed)
}

// remove tells the end of a leg and forgets it. The caller holds mu.
func (t *Table) remove(id string, e *entry) {
	delete(t.legs, id)
	t.unindex(e)
	t.send(networkservice.ConnectionEventType_DELETE, e.told)
}

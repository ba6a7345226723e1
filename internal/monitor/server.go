package monitor

import (
	"context"
	"errors"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

type server struct {
	table *Table
	grace func(ctx context.Context) time.Duration
	moved func(ctx context.Context) func(context.Context) bool
}

// NewServer is the element that tells the table of Requests and Closes and has
// each leg watched by a relay. Grace says how long a loss on the current leg is
// kept from the subscribers; it is asked when the leg's first Request, or its
// move to another hop, has succeeded; and so is moved, for what tells whether a
// leg that has been lost is elsewhere by then.
func NewServer(
	t *Table,
	grace func(ctx context.Context) time.Duration,
	moved func(ctx context.Context) func(context.Context) bool,
) networkservice.NetworkServiceServer {
	return &server{table: t, grace: grace, moved: moved}
}

func (s *server) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	id := request.GetConnection().GetId()
	e := s.table.begin(id)
	withStopgap := leg.WithStopgap(ctx, func() bool { return s.hasStopgap(ctx, e) })
	conn, err := s.pass(withStopgap, id, e, request)
	if err != nil {
		if conn := s.stopgap(ctx, e, request, err); conn != nil {
			return conn, nil
		}
		s.refused(ctx, e, err)
		return nil, err
	}
	conn.State = networkservice.State_UP
	leg.Answered(ctx, s.table.answered(e, conn, peerOf(ctx), leg.InPlace(ctx)))
	s.watch(ctx, e, conn)
	return conn, nil
}

// pass sends the Request on. What was held in its time is let go if it fails, also
// where an element behind panics.
func (s *server) pass(ctx context.Context, id string, e *entry, request *networkservice.NetworkServiceRequest) (conn *networkservice.Connection, err error) {
	answered := false
	defer func() {
		if !answered {
			s.table.failed(id, e)
		}
	}()
	conn, err = next.Server(ctx).Request(ctx, request)
	answered = err == nil
	return conn, err
}

// refused has a relay that pauses between two attempts go on at once: a far side that
// refuses can be reached, and what it says of the leg is waited for by a client that
// has just been told an error. A relay's own Request is what it goes on from.
func (s *server) refused(ctx context.Context, e *entry, err error) {
	if _, lost := errors.AsType[*hop.TransportError](err); lost || leg.InPlace(ctx) || ctx.Err() != nil {
		return
	}
	if r := s.table.relayOf(e); r != nil {
		r.answered()
	}
}

// watch keeps the relay of a leg that stays on its hop, and replaces it when the
// leg has moved.
func (s *server) watch(ctx context.Context, e *entry, told *networkservice.Connection) {
	upstream := hop.FromLeg(ctx)
	if upstream == nil {
		return
	}
	old := s.table.relayOf(e)
	if old != nil && old.hop.Same(upstream) {
		old.answered()
		return
	}
	r := newRelay(s.table, e, leg.FromContext(ctx), upstream.Retain(), told, s.grace(ctx), s.moved(ctx))
	r.haunted = leg.MayHaveGhost(ctx)
	s.table.replace(e, r)
}

func (s *server) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	leg.CloseBegun(ctx)
	id := conn.GetId()
	s.table.unwatch(id)
	closed := conn.Clone()
	empty, err := next.Server(ctx).Close(ctx, conn)
	if !leg.Reselecting(ctx) && !leg.Retried(ctx) {
		s.table.deleted(id, peerOf(ctx), closed)
	}
	return empty, err
}

package leg

import (
	"context"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// soon is when a token that has run out already closes its leg: once the answer
// to the Request is out.
const soon = time.Millisecond

// requestTime is how long the caller gives a Request. The expiry comes that
// much early, as in the SDK: a refresh that is just under way still counts. A
// caller with much more patience than a refresh takes must not have its leg
// closed for it.
func requestTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return min(max(0, time.Until(deadline)), closeTimeout)
}

// alive refuses a Request whose tokens have run out by now, as they do when a Workload
// API is away for longer than a certificate lives. It would be answered, and closed
// upstream in the same moment; and the SDK's clients, which refresh at a part of what is
// left, or heal what was closed, would come again at once, for as long as that lasts.
type alive struct{}

// NewAliveServer is the element behind the one that renews the tokens.
func NewAliveServer() networkservice.NetworkServiceServer { return alive{} }

func (alive) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	conn := request.GetConnection()
	for _, segment := range []*networkservice.PathSegment{conn.GetPrevPathSegment(), conn.GetCurrentPathSegment()} {
		if expires := segment.GetExpires(); expires != nil && !time.Now().Before(expires.AsTime()) {
			return nil, status.Errorf(codes.Unauthenticated, "leg: the token of %s ran out at %s",
				segment.GetName(), expires.AsTime().Format(time.RFC3339))
		}
	}
	return next.Server(ctx).Request(ctx, request)
}

func (alive) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	return next.Server(ctx).Close(ctx, conn)
}

// startExpiry arms the timer for the end of the leg, in the place of the earlier one.
// That is when the previous hop's token runs out, or our own: the far side holds that
// one against us, and a caller must not keep a leg here for years that has ended
// there. The caller has the turn.
func (l *Leg) startExpiry(conn *networkservice.Connection) {
	l.stopExpiry()
	expires := earliest(conn.GetPrevPathSegment().GetExpires(), conn.GetCurrentPathSegment().GetExpires())
	if expires.IsZero() {
		return
	}
	// Where little is left, a refresh in half of it is to come in time.
	left := time.Until(expires)
	left = max(left-min(l.early, left/2), soon)
	armed := l.armed
	l.expiry = time.AfterFunc(left, func() {
		// A timer's goroutine is the runtime's; this one has an owner.
		l.table.group.Go("the expiry of a leg", func(ctx context.Context) { l.expire(ctx, armed) })
	})
}

// earliest returns the first of the times that are there, or zero.
func earliest(times ...*timestamppb.Timestamp) (first time.Time) {
	for _, t := range times {
		if t != nil && (first.IsZero() || t.AsTime().Before(first)) {
			first = t.AsTime()
		}
	}
	return first
}

// stopExpiry disarms the timer. One that has fired already and waits for its
// turn finds another count and does nothing.
func (l *Leg) stopExpiry() {
	l.armed++
	if l.expiry != nil {
		l.expiry.Stop()
		l.expiry = nil
	}
}

// expire closes the leg if the timer that fired is still the leg's own.
func (l *Leg) expire(ctx context.Context, armed int) {
	// Whoever has the turn has a deadline; without ours the expiry is not lost.
	ok, err := l.await(ctx)
	if err != nil || !ok {
		return
	}
	defer l.leave()
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if l.armed != armed || !l.established {
		return
	}
	defer l.drop()
	log.FromContext(ctx).WithField("connection", l.id).Info("leg: tokens ran out, closing")
	if err := l.closeFar(ctx, expired); err != nil {
		log.FromContext(ctx).Warnf("leg: close at expiry: %v", err)
	}
}

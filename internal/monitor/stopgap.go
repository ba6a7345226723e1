package monitor

import (
	"context"
	"errors"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/protobuf/proto"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

// A stock forwarder turns any error of a refresh into a DOWN of its own and stops
// monitoring. So a refresh that asks for nothing new, and whose hop is lost but
// inside its grace, is answered with the last known state, and delivered when the
// hop is back. The far side's expiries in the answer say that nothing was renewed
// behind us.

const (
	// nearEnd is how much life the far side's tokens must have left, beyond the
	// grace, for the refresh to be delivered in time: a far side closes a connection
	// one request's time early. That is what the SDK gives a caller's try, and as
	// much again as a Request of ours may be late (leg.Lateness).
	nearEnd = 15 * time.Second
	// deliveryPause is the time before the first attempt to deliver; it doubles up
	// to maxDeliveryPause for a far side that refuses.
	deliveryPause    = time.Second
	maxDeliveryPause = 8 * time.Second
)

// hasStopgap tells whether the Request could be answered without the far side.
func (s *server) hasStopgap(ctx context.Context, e *entry) bool {
	return !leg.InPlace(ctx) && s.table.inGrace(e) > 0 && leg.Pure(ctx)
}

// stopgap answers a Request that failed with err, or returns nil.
func (s *server) stopgap(ctx context.Context, e *entry, request *networkservice.NetworkServiceRequest, err error) *networkservice.Connection {
	if _, lost := errors.AsType[*hop.TransportError](err); !lost || !s.hasStopgap(ctx, e) {
		return nil
	}
	answer := s.table.tellLastKnown(e, request.GetConnection())
	if answer == nil {
		return nil
	}
	s.table.logger(answer.GetId()).Info("refresh answered with the last known state, to be delivered when the hop is back")
	s.table.owe(e, leg.FromContext(ctx))
	return answer
}

// inGrace returns what is left of the grace of a leg that is not DOWN and whose far
// side is good for longer than that, or 0.
func (t *Table) inGrace(e *entry) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.graceLeft(e)
}

// graceLeft is inGrace with mu held.
func (t *Table) graceLeft(e *entry) time.Duration {
	if !e.told.Set() || e.state == networkservice.State_DOWN || e.relay == nil {
		return 0
	}
	left := e.relay.grace
	if !e.lost.IsZero() { // otherwise the stream has not noticed yet
		left -= time.Since(e.lost)
	}
	if left <= 0 || e.nearsEnd(left) {
		return 0
	}
	return left
}

// tellLastKnown tells, and returns, the last known state with the path before us as
// renewed in the request. Our own token is the one for the far side, as it has it: a
// client's policies want each token to be for the segment behind. It returns nil if
// that is over by now.
func (t *Table) tellLastKnown(e *entry, renewed *networkservice.Connection) *networkservice.Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.graceLeft(e) <= 0 {
		return nil
	}
	answer := e.told.Unpack()
	answer.State = networkservice.State_UP // also where a refresh had been asked for: here it is
	for i := range int(answer.GetPath().GetIndex()) {
		answer.Path.PathSegments[i] = proto.CloneOf(renewed.GetPath().GetPathSegments()[i])
	}
	t.tell(e, answer)
	return answer
}

// nearsEnd tells whether the leg's far side may end it soon after what is left of the
// grace, which is what the delivery may take. It looks at our own token, which is the
// one that the far side holds against us, and at those behind it. The caller holds mu of
// the table.
func (e *entry) nearsEnd(left time.Duration) bool {
	conn := e.told.Unpack()
	for i, segment := range conn.GetPath().GetPathSegments() {
		if i < int(conn.GetPath().GetIndex()) || segment.GetExpires() == nil {
			continue
		}
		expires := segment.GetExpires().AsTime()
		early := nearEnd + leg.Lateness(expires.Sub(e.answered), nearEnd)
		if time.Until(expires) < left+early {
			return true
		}
	}
	return false
}

// owe delivers the refresh behind its caller's back, within what is left of the
// grace. A Request or Close that comes in between makes it needless.
func (t *Table) owe(e *entry, l *leg.Leg) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.owed != 0 || l == nil {
		return
	}
	e.debts++
	e.owed = e.debts
	debt := e.owed
	left := t.graceLeft(e)
	t.group.Go("the delivery of a refresh", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		for pause := deliveryPause; ; pause = min(2*pause, maxDeliveryPause) {
			select {
			case <-ctx.Done():
				t.settleDebt(e, debt)
				return
			case <-time.After(pause):
			}
			known := t.owedState(e, debt)
			if known == nil {
				return
			}
			// Its success settles the debt, as any other Request's does.
			_ = l.Rerequest(ctx, known)
		}
	})
}

// owedState returns what is known of a leg whose refresh of that number is still owed, or
// nil.
func (t *Table) owedState(e *entry, debt int) *networkservice.Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.owed != debt {
		return nil
	}
	return e.told.Unpack()
}

func (t *Table) settleDebt(e *entry, debt int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.owed == debt {
		e.owed = 0
	}
}

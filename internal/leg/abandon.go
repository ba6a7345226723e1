package leg

import (
	"context"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/token"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/packed"
)

// A caller that gives up does not end its Request: the far side may have it half
// done, and a stock one turns the cancelled refresh of a good connection into a
// DOWN. So a Request runs on past its caller, for a while.
//
// A refresh whose caller gave up is kept like any other. A first Request leaves a
// leg that nobody knows of. If its caller asks again, for the same endpoint, the
// new leg takes the abandoned one over at the far side, also where a stock retry
// has minted new ids for all of the path but its first segment. If nobody asks
// again by the time the far side answers, the leg is closed there.

const (
	// maxLateness is how long a Request runs on behind its caller: several round
	// trips of a far side that is slower than the 15 s the SDK gives a try.
	maxLateness = 45 * time.Second
	// latenessShare of the token's remaining life is the other bound, for the whole
	// time that a Request is given: the far side closes a connection as long as that
	// before its token runs out, and each proxy on the way may add to it.
	latenessShare = 4
	// untokened is the bound for a caller that sent no token.
	untokened = 15 * time.Second
)

type deadlineKey struct{}

// callerDeadline is when the caller of a detached Request gives up, or zero.
func callerDeadline(ctx context.Context) time.Time {
	if deadline, ok := ctx.Value(deadlineKey{}).(time.Time); ok {
		return deadline
	}
	deadline, _ := ctx.Deadline()
	return deadline
}

// Deadline is when the caller of the current Request gives up. The Request
// itself may go on for longer. The second result tells whether there is one.
func Deadline(ctx context.Context) (time.Time, bool) {
	deadline := callerDeadline(ctx)
	return deadline, !deadline.IsZero()
}

// detach returns the context of a Request that runs on behind its caller. One
// without a deadline stays with its caller: there would be no end to it.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	lateness := untokened
	if _, expires, err := token.FromContext(ctx); err == nil {
		lateness = Lateness(time.Until(expires), time.Until(deadline))
	}
	run := context.WithValue(context.WithoutCancel(ctx), deadlineKey{}, deadline)
	return context.WithDeadline(run, deadline.Add(lateness))
}

// Lateness is how long beyond its caller's deadline, which is that far ahead, a Request
// may run on whose token is good for life. The far side is told of the end of both, and
// closes the connection that much before its token runs out.
func Lateness(life, ahead time.Duration) time.Duration {
	return min(maxLateness, max(0, life/latenessShare-ahead))
}

// origin is what a first Request and the one that asks again for it have in
// common.
type origin struct {
	name, id, endpoint, service string
	index                       uint32
}

func originOf(conn *networkservice.Connection) origin {
	o := origin{endpoint: conn.GetNetworkServiceEndpointName(), service: conn.GetNetworkService(), index: conn.GetPath().GetIndex()}
	if segments := conn.GetPath().GetPathSegments(); len(segments) > 0 {
		o.name, o.id = segments[0].GetName(), segments[0].GetId()
	}
	return o
}

// begin notes that a first Request is in flight, so that one that asks again
// finds it. The returned function is called at its end.
func (t *Table) begin(l *Leg, conn *networkservice.Connection) (end func()) {
	o := originOf(conn)
	t.mu.Lock()
	defer t.mu.Unlock()
	l.origin = &o
	t.first[o] = l
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !l.abandoned {
			l.forgetOrigin()
		}
	}
}

func (t *Table) firstOf(o origin) *Leg {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first[o]
}

// adopt waits for a Request that asked for the same before. If its caller gave up
// on it, the request goes on as a refresh of what it left at the far side; adopt
// then returns the old leg with its turn, for inherit to settle. The error is that
// of ctx.
func (l *Leg) adopt(ctx context.Context, request *networkservice.NetworkServiceRequest) (*Leg, error) {
	conn := request.GetConnection()
	o := originOf(conn)
	for {
		old := l.table.firstOf(o)
		if old == nil || old == l {
			return nil, nil
		}
		ok, err := old.take(ctx)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if !old.isAbandoned() || !old.established {
			old.leave()
			return nil, nil
		}
		log.FromContext(ctx).Info("leg: taking over what an abandoned request left at the far side")
		index := int(conn.GetPath().GetIndex())
		conn.Path.PathSegments = append(conn.Path.PathSegments, old.last().GetPath().GetPathSegments()[index+1:]...)
		return old, nil
	}
}

// inherit ends the old leg here, its far side being ours by now. If it has not
// become ours, the old leg waits for the next one who asks, or is closed.
func (l *Leg) inherit(ctx context.Context, old *Leg) {
	if old == nil {
		return
	}
	if l.established {
		old.end(ctx, handedOver)
	}
	old.leave()
	old.forsaken()
}

// settle decides on a leg whose caller may have given up. The caller of settle
// has the turn.
func (l *Leg) settle(ctx, run context.Context, first bool) {
	if l.judge(ctx.Err() != nil, first) {
		log.FromContext(ctx).Info("leg: the caller gave up before the far side answered, closing")
		l.end(run, abandoned)
	}
}

// judge notes whether the leg is abandoned, and tells whether nobody waits for
// it either.
func (l *Leg) judge(gaveUp, first bool) (forsaken bool) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.abandoned = gaveUp && (l.abandoned || first)
	if !l.abandoned {
		l.forgetOrigin()
	}
	return l.abandoned && l.waiters == 0
}

func (l *Leg) isAbandoned() bool {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	return l.abandoned
}

// end closes the leg for a reason of our own. The caller has the turn.
func (l *Leg) end(ctx context.Context, why reason) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := l.closeFar(ctx, why); err != nil {
		log.FromContext(ctx).Warnf("leg: close: %v", err)
	}
	l.drop()
}

// closeFar sends a Close in the last caller's name. The leg stays in the table. The
// caller has the turn.
func (l *Leg) closeFar(ctx context.Context, why reason) error {
	ctx = withReason(withLeg(l.caller.context(ctx), l), why)
	_, err := l.server.Close(ctx, l.last())
	return err
}

// forsaken is called when somebody has stopped waiting for the leg: if it was
// kept for nobody else, it is closed behind everybody's back.
func (l *Leg) forsaken() {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if !l.abandoned || l.waiters > 0 {
		return
	}
	l.table.group.Go("closing a forsaken leg", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		if ok, err := l.await(ctx); err != nil || !ok {
			return
		}
		defer l.leave()
		if l.established && l.judge(true, false) {
			l.end(ctx, abandoned)
		}
	})
}

// keep remembers the answer to a good request. The caller has the turn.
func (l *Leg) keep(answer *networkservice.Connection) {
	if !l.kept.Set() {
		l.kept = packed.Pack(answer)
	}
	l.answer, l.kept = l.kept, packed.Message[*networkservice.Connection]{}
	l.established = true
	l.good.Add(1)
}

package monitor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// recover does what can be done before the next attempt, and tells the loss when the
// grace is over.
func (r *relay) recover(ctx context.Context, err error, wait time.Duration, retired bool) {
	r.catchUp()
	missing := errors.Is(err, errMissing)
	if r.left() > 0 && (missing || r.elsewhere(ctx)) {
		r.rerequest(ctx)
	}
	if r.left() <= 0 && !retired {
		r.giveUp(ctx, err)
	}
	r.rest(ctx, wait, missing)
}

// catchUp takes in a Request that has been answered: a word like any other.
func (r *relay) catchUp() (busy bool) {
	answered, busy := r.table.catchUp(r)
	if answered.After(r.lastWord) {
		r.lastWord, r.down = answered, false
	}
	return busy
}

// elsewhere tells whether the far side is at another address by now. It is looked
// up while the hop is down, every few seconds: no Request may come inside the
// grace that would find out.
func (r *relay) elsewhere(ctx context.Context) bool {
	if r.moved == nil || r.hop.Connected() || time.Since(r.lastWord) < askAfter || time.Since(r.asked) < askAfter {
		return false
	}
	r.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(r.left(), askAfter))
	defer cancel()
	return r.moved(ctx)
}

// left is what is left of the grace.
func (r *relay) left() time.Duration { return time.Until(r.lastWord.Add(r.grace)) }

// spread is a random part of a window that grows with the legs on the hop.
func (r *relay) spread() time.Duration {
	return rand.N(min(time.Duration(r.hop.Users())*spreadPerLeg, maxSpread) + 1)
}

// rerequest puts the leg back in place at a far side that has lost it. A leg of
// which the far side has said that it is down is left alone: that word is not
// argued with.
func (r *relay) rerequest(ctx context.Context) {
	known := r.table.up(r)
	if r.leg == nil || known == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.left())
	defer cancel()
	r.logger().Info("requesting the connection again in place")
	if err := r.leg.Rerequest(ctx, known); err != nil {
		r.logger().Debugf("request in place: %v", err)
		return
	}
	r.catchUp()
	select {
	case <-r.answers: // our own; it is no reason not to pause
	default:
	}
}

// giveUp tells the loss, once. A Request that is on its way may still have the
// better word: it gets a moment.
func (r *relay) giveUp(ctx context.Context, err error) {
	if r.down {
		return
	}
	if r.grace > 0 {
		r.awaitAnswer(ctx)
		if ctx.Err() != nil || r.left() > 0 {
			return
		}
	}
	r.down = true
	r.settled(false)
	if r.table.lose(r) {
		r.logger().Infof("down: lost past the grace of %s: %v", r.grace, err)
	}
}

// awaitAnswer waits a moment for an answer that makes the loss good.
func (r *relay) awaitAnswer(ctx context.Context) {
	moment := time.After(doubtFor)
	for busy := r.catchUp(); busy && r.left() <= 0; busy = r.catchUp() {
		select {
		case <-ctx.Done():
			return
		case <-r.answers:
		case <-moment:
			r.catchUp()
			return
		}
	}
}

// rest waits before the next attempt: no longer than the grace lasts, and not at
// all once a Request has come through.
func (r *relay) rest(ctx context.Context, wait time.Duration, missing bool) {
	limit := maxPause
	if missing {
		// Every attempt at a far side that answers Requests but shows nothing is
		// a Request, too.
		limit = max(limit, r.grace/3)
	}
	r.pause = min(r.pause*8/5, limit)
	if !r.down {
		wait = min(wait, max(r.left(), 0))
	}
	select {
	case <-ctx.Done():
	case <-r.answers:
	case <-time.After(wait):
	}
	r.catchUp()
}

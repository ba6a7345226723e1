package monitor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/log"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

const (
	// initialTimeout is how long the far side may take for its initial state.
	// It needs no more than a round trip; until then the stream is not open.
	initialTimeout = 5 * time.Second
	// firstPause and maxPause bound the pauses between attempts at a stream. A
	// stream costs the far side little, and the grace is short.
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
	// steady is how long a stream must have lasted for the pauses to start over:
	// one that a peer ends right after its initial state is not a success.
	steady = time.Second
	// spreadPerLeg and maxSpread spread the first attempt after a cut over the
	// legs of the hop, so that thousands do not come in one burst.
	spreadPerLeg = time.Millisecond
	maxSpread    = 1500 * time.Millisecond
)

// relay watches one leg at the far side.
//
//	opening ──initial state──▶ watching ──stream ends──▶ opening
//	   │ │                        ▲
//	   │ └─leg is not in it, ─▶ missing ──re-request answered──▶ opening
//	   │   or stream refused      │
//	   └──────── grace over ──────┴──▶ down ──initial state, UP──▶ watching
//
// The grace runs from the last word of the far side: the end of a stream on
// which it showed the leg, or the answer to a Request. In every state the far
// side's own DOWN is told at once, and a Request's answer starts the relay over
// in opening, or leaves it in watching.
type relay struct {
	// Set once at construction.
	table  *Table
	entry  *entry
	leg    *leg.Leg
	hop    *hop.Handle
	ours   *networkservice.Connection
	grace  time.Duration
	log    log.Logger
	cancel context.CancelFunc
	// answers has a token when a Request of the leg has succeeded.
	answers chan struct{}

	// Used by the relay's own goroutine alone.
	lastWord time.Time     // when the far side last said that the leg is there
	lost     bool          // a stream that showed the leg has ended, and no other has begun
	down     bool          // the loss has been told
	pause    time.Duration // before the next attempt at a stream
}

// errMissing says that the far side does not know the connection, or does not
// show it.
var errMissing = errors.New("monitor: not shown by the far side")

func newRelay(t *Table, e *entry, l *leg.Leg, h *hop.Handle, told *networkservice.Connection, grace time.Duration) *relay {
	return &relay{
		table: t, entry: e, leg: l, hop: h, ours: told, grace: grace,
		log:     t.logger(told.GetId()).WithField("hop", h.Target()),
		answers: make(chan struct{}, 1),
	}
}

// answered tells the relay that a Request of the leg has succeeded on its hop.
func (r *relay) answered() {
	select {
	case r.answers <- struct{}{}:
	default:
	}
}

// stop ends the relay soon. Whether it is still listened to is the table's
// affair, and settled before.
func (r *relay) stop() { r.cancel() }

// run watches until the leg is closed or moves, or the proxy ends.
func (r *relay) run(ctx context.Context) {
	defer r.hop.Release()
	defer r.cancel()
	r.lastWord, r.pause = time.Now(), firstPause
	for {
		began := time.Now()
		shown, err := r.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := r.pause/2 + rand.N(r.pause)
		if shown {
			r.lastWord = time.Now()
			r.noteLoss(err)
			if time.Since(began) >= steady {
				r.pause, wait = firstPause, r.spread()
			}
		}
		missing := errors.Is(err, errMissing)
		if missing && !r.down && r.left() > 0 {
			r.rerequest(ctx)
		}
		if !r.down && r.left() <= 0 {
			r.giveUp(ctx, err)
		}
		r.rest(ctx, wait, missing)
	}
}

// left is what is left of the grace.
func (r *relay) left() time.Duration { return time.Until(r.lastWord.Add(r.grace)) }

// spread is a random part of a window that grows with the legs on the hop.
func (r *relay) spread() time.Duration {
	return rand.N(min(time.Duration(r.hop.Users())*spreadPerLeg, maxSpread) + 1)
}

// noteLoss logs the first loss at INFO. Those that follow before the stream was
// steady again are repeats.
func (r *relay) noteLoss(err error) {
	if errors.Is(err, errMissing) {
		return
	}
	r.lost = true
	r.table.setLost(r, r.lastWord)
	r.log.Infof("monitor stream lost, resuming within %s: %v", r.grace, err)
}

func (r *relay) noteResumed() {
	if r.lost {
		r.log.Infof("monitor stream resumed after %s", time.Since(r.lastWord).Round(time.Millisecond))
	}
	r.lost, r.down = false, false
	r.table.setLost(r, time.Time{})
}

// rerequest puts the leg back in place at a far side that has lost it.
func (r *relay) rerequest(ctx context.Context) {
	if r.leg == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.left())
	defer cancel()
	r.log.Info("far side does not show the connection, requesting it again in place")
	if err := r.leg.Rerequest(ctx); err != nil {
		r.log.Debugf("request in place: %v", err)
		return
	}
	r.lastWord = time.Now()
	select {
	case <-r.answers: // our own; it is no reason not to pause
	default:
	}
}

// giveUp tells the loss. A Request that is on its way may still have the better
// word: it gets a moment.
func (r *relay) giveUp(ctx context.Context, err error) {
	if r.grace > 0 && r.table.busy(r) {
		select {
		case <-ctx.Done():
			return
		case <-r.answers:
			r.lastWord = time.Now()
			return
		case <-time.After(doubtFor):
		}
	}
	r.down = true
	if r.table.lose(r) {
		r.log.Infof("down: lost past the grace of %s: %v", r.grace, err)
	}
}

// rest waits before the next attempt: no longer than the grace lasts, and not at
// all once a Request has been answered.
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
		r.lastWord, r.down = time.Now(), false
	case <-time.After(wait):
	}
}

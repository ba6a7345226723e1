package monitor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
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
	// askAfter is how long a hop is down before the far side's address is looked
	// up, and the time between two look-ups: a cut is over by then.
	askAfter = 5 * time.Second
	// spreadPerLeg and maxSpread spread the first attempt after a cut over the
	// legs of the hop, so that thousands do not come in one burst.
	spreadPerLeg = time.Millisecond
	maxSpread    = 1500 * time.Millisecond
)

// relay watches one leg at the far side. Its states are drawn in the comment of
// the package.
type relay struct {
	// Set once at construction.
	table  *Table
	entry  *entry
	leg    *leg.Leg
	hop    *hop.Handle
	ours   place
	grace  time.Duration
	moved  func(context.Context) bool
	cancel context.CancelFunc
	// haunted tells that the far side may have a second connection for the leg.
	haunted bool
	// answers has a token when a Request of the leg has been answered by the far side.
	answers chan struct{}

	// Used by one of the relay's goroutines at a time.
	lastWord time.Time     // when the far side last said that the leg is there
	unheard  bool          // a stream that showed the leg has ended, and no other has begun
	quiet    bool          // the last stream was too short for a line, or ended for our own sake
	loss     *loss         // the hop's in which that of the last one is counted, or nil
	down     bool          // the loss has been told
	pause    time.Duration // before the next attempt at a stream
	asked    time.Time     // when the far side's address was last looked up
	ghost    string        // the next segment's id in a second connection that has been closed
}

// errMissing says that the far side does not know the connection, or does not
// show it.
var errMissing = errors.New("monitor: not shown by the far side")

// errEarly says the same of an initial state that was taken before the last answer,
// maybe: it is no word on the connection, and the next stream's is.
var errEarly = errors.New("monitor: not shown by the far side before its answer")

func newRelay(t *Table, e *entry, l *leg.Leg, h *hop.Handle, told *networkservice.Connection, grace time.Duration, moved func(context.Context) bool) *relay {
	return &relay{
		table: t, entry: e, leg: l, hop: h, ours: placeOf(told), grace: grace, moved: moved,
		answers: make(chan struct{}, 1),
	}
}

// logger is made when there is something to say: thousands of relays have nothing.
func (r *relay) logger() log.Logger {
	return r.table.logger(r.ours.id).WithField("hop", r.hop.Target())
}

// answered tells the relay that a Request of the leg has come through on its hop,
// whatever the answer: there is no reason to pause.
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
	r.lastWord, r.pause = time.Now(), firstPause
	r.open(ctx)
}

// open tries until a stream shows the leg, and has another goroutine listen to that.
// Of the thousands that listen each has the stack that listening takes, which is half
// of what getting there takes.
func (r *relay) open(ctx context.Context) {
	r.proceed(ctx, func() (goesOn bool) {
		for {
			s, err := r.watch(ctx)
			if err == nil {
				r.table.wg.Go(func() { r.listen(ctx, s) })
				return true
			}
			if ctx.Err() != nil {
				return false
			}
			r.failed(ctx, err)
		}
	})
}

// proceed is one part of the relay's life. Unless another goes on with it, it ends.
func (r *relay) proceed(ctx context.Context, part func() (goesOn bool)) {
	goesOn := false
	defer func() {
		if !goesOn {
			r.cancel()
			r.settled(false)
			r.hop.Release()
			r.table.ended(r)
		}
	}()
	defer guard.Recover(ctx, "relay")
	goesOn = part()
}

// failed waits for the next attempt, after one at a stream that has not shown the leg.
func (r *relay) failed(ctx context.Context, err error) {
	wait := r.pause/2 + rand.N(r.pause)
	r.recover(ctx, err, wait, false)
}

// lost waits for the next attempt, after a stream that had shown the leg.
func (r *relay) lost(ctx context.Context, s *shown, err error) {
	wait := r.pause/2 + rand.N(r.pause)
	// One that we have cancelled ourselves, for a new connection in the place of the
	// old one, is no loss.
	retired := status.Code(err) == codes.Canceled
	short := time.Since(s.began) < steady
	r.lastWord = time.Now()
	r.noteLoss(err, short || retired)
	if !short {
		r.pause, wait = firstPause, r.spread()
	}
	r.recover(ctx, err, wait, retired)
}

// noteLoss tells of the loss of a stream that had shown the leg. One that was short
// is a repeat, and one that was cancelled is our own doing; neither is worth a line
// at INFO, nor is its resumption, unless it was told as DOWN meanwhile: then it is quiet.
func (r *relay) noteLoss(err error, quiet bool) {
	select {
	case <-r.answers: // from when all was well; it is no reason to hurry
	default:
	}
	r.unheard, r.quiet = true, quiet
	r.table.setLost(r, r.lastWord)
	if quiet {
		r.logger().Debugf("monitor stream ended, opening another: %v", err)
		return
	}
	r.logger().Debugf("monitor stream lost, resuming within %s: %v", r.grace, err)
	r.settled(false)
	r.loss = r.table.losses.begin(r.hop.Target(), r.ours.id, r.grace, err)
}

func (r *relay) noteResumed() {
	after := time.Since(r.lastWord).Round(time.Millisecond)
	if r.down {
		r.logger().Infof("heard of again after %s", after)
	}
	if r.down || r.unheard && !r.quiet {
		r.logger().Debugf("monitor stream resumed after %s", after)
	}
	r.settled(true)
	r.unheard, r.down = false, false
}

// settled tells of the end of a loss.
func (r *relay) settled(back bool) {
	if r.loss != nil {
		r.table.losses.end(r.loss, back, time.Since(r.lastWord))
		r.loss = nil
	}
}

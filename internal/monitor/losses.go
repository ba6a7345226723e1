package monitor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/background"
)

const (
	// gatherFor is how long after the first loss on a hop others are counted with it: a
	// cut ends the streams of thousands of legs in one moment.
	gatherFor = time.Second
	// lateBy is how long after the grace it is said how it ended, however many are lost
	// still: a far side may answer for a leg, and never show it.
	lateBy = 5 * time.Second
)

// losses tells of streams that were lost, and are back, once for each hop and not for each
// of the legs that go over it.
type losses struct {
	group *background.Group
	log   log.Logger

	// mu guards the following field, and what is in its values. It is a leaf.
	mu   sync.Mutex
	hops map[string]*loss // those that gather, by hop
}

// loss is what has been lost in one moment.
type loss struct {
	lost, back, open int
	longest          time.Duration // of those that are back
	gathered         bool          // it takes no more
	over             chan struct{} // closed when it has gathered and none is open
}

func newLosses(group *background.Group, logger log.Logger) *losses {
	return &losses{group: group, log: logger, hops: make(map[string]*loss)}
}

// begin notes that a leg's stream over the hop is lost. End has to follow for what it
// returns.
func (l *losses) begin(hop, connection string, grace time.Duration, err error) *loss {
	l.mu.Lock()
	one, ok := l.hops[hop]
	if !ok {
		one = &loss{over: make(chan struct{})}
		l.hops[hop] = one
	}
	one.lost++
	one.open++
	l.mu.Unlock()
	if !ok {
		l.log.WithField("hop", hop).Infof("monitor stream of %s lost, resuming within %s: %v", connection, grace, err)
		l.group.Go("telling of lost streams", func(ctx context.Context) { l.follow(ctx, hop, grace+lateBy, one) })
	}
	return one
}

// end notes that a stream is back after so long, or, if back is false, that it is not
// wanted any more or has been told as a loss.
func (l *losses) end(one *loss, back bool, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one.open--
	if back {
		one.back++
		one.longest = max(one.longest, after)
	}
	if one.gathered && one.open == 0 {
		close(one.over)
	}
}

// follow tells how many there are, and how it ends.
func (l *losses) follow(ctx context.Context, hop string, limit time.Duration, one *loss) {
	logger := l.log.WithField("hop", hop)
	if !pause(ctx, gatherFor, nil) {
		return
	}
	if lost, open := l.gather(hop, one); open > 0 {
		if lost > 1 {
			logger.Infof("%d monitor streams lost", lost)
		}
		if !pause(ctx, limit, one.over) {
			return
		}
	}
	logger.Infof("monitor streams: %s", l.outcome(one))
}

// pause returns after that time, or earlier if it is over, or false if ctx has ended.
func pause(ctx context.Context, d time.Duration, over <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-over:
	}
	return true
}

// gather ends the gathering of a loss.
func (l *losses) gather(hop string, one *loss) (lost, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.hops, hop)
	one.gathered = true
	return one.lost, one.open
}

func (l *losses) outcome(one *loss) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprintf("%d of %d resumed", one.back, one.lost)
	if one.back > 0 {
		text += fmt.Sprintf(" within %s", one.longest.Round(time.Millisecond))
	}
	if one.open > 0 {
		text += fmt.Sprintf(", %d lost still", one.open)
	}
	return text
}

package monitor

import (
	"context"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/background"
)

// countAfter is how long after the first loss on a hop it is said how many there were: a
// cut ends the streams of thousands of legs in one moment.
const countAfter = time.Second

// losses tells of streams that were lost, and are back, once for each hop and not for each
// of the legs that go over it.
type losses struct {
	group *background.Group
	log   log.Logger

	// mu guards the following field and what is in it. It is a leaf.
	mu   sync.Mutex
	hops map[string]*loss
}

// loss is a time in which streams over a hop are lost.
type loss struct {
	lost, back, open int
	longest          time.Duration // of those that are back
	over             chan struct{} // closed when none is lost any more
}

func newLosses(group *background.Group, logger log.Logger) *losses {
	return &losses{group: group, log: logger, hops: make(map[string]*loss)}
}

// begin notes that a leg's stream over the hop is lost. End has to follow.
func (l *losses) begin(hop, connection string, grace time.Duration, err error) {
	l.mu.Lock()
	one, ok := l.hops[hop]
	if !ok {
		one = &loss{over: make(chan struct{})}
		l.hops[hop] = one
	}
	one.lost++
	one.open++
	l.mu.Unlock()
	if ok {
		return
	}
	l.logger(hop).Infof("monitor stream of %s lost, resuming within %s: %v", connection, grace, err)
	l.group.Go("telling of lost streams", func(ctx context.Context) { l.follow(ctx, hop, one) })
}

// end notes that it is back after so long, or, if back is false, that it is not wanted any
// more or has been told as a loss.
func (l *losses) end(hop string, back bool, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.hops[hop]
	if !ok {
		return
	}
	one.open--
	if back {
		one.back++
		one.longest = max(one.longest, after)
	}
	if one.open == 0 {
		delete(l.hops, hop)
		close(one.over)
	}
}

// follow tells how many there are, and how it ends.
func (l *losses) follow(ctx context.Context, hop string, one *loss) {
	timer := time.NewTimer(countAfter)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			if lost := l.count(one); lost > 1 {
				l.logger(hop).Infof("%d monitor streams lost", lost)
			}
		case <-one.over:
			l.logger(hop).Infof("monitor streams: %d of %d resumed, within %s", one.back, one.lost, one.longest.Round(time.Millisecond))
			return
		}
	}
}

func (l *losses) count(one *loss) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return one.lost
}

func (l *losses) logger(hop string) log.Logger { return l.log.WithField("hop", hop) }

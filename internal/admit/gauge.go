package admit

import (
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// gaugePause is the time between two looks at the memory. Each takes some
	// microseconds.
	gaugePause = 5 * time.Millisecond
	// tightPart of the limit is what the runtime has with the rooms full, and a little.
	// It takes a collection or two until reading more slowly shows.
	tightPart = 0.97
)

// gauge tells when the process has about as much as it may have. What is counted is what peers
// hold, and not what is left of calls that have ended: with the rooms full they can
// make garbage faster than the collector, which the runtime lets have half of the CPU at
// most, finds it. Reading more slowly, then, is what gives it time.
type gauge struct {
	limit uint64
	next  atomic.Int64
	over  atomic.Bool
}

// tight returns true when it is so. Without a limit it never is.
func (g *gauge) tight() bool {
	if g.limit == 0 {
		return false
	}
	now, next := time.Now().UnixNano(), g.next.Load()
	if now >= next && g.next.CompareAndSwap(next, now+int64(gaugePause)) {
		// The two that the runtime holds against its own limit.
		samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(samples)
		g.over.Store(samples[0].Value.Uint64()-samples[1].Value.Uint64() > g.limit)
	}
	return g.over.Load()
}

// Package warm runs short pieces of work on goroutines that have done such work before.
//
// A message passes some thirty frames of decoding and of the chain, and gRPC makes a
// goroutine for each call: its stack grows there by being copied four times over, which
// was a fourteenth of the CPU time of a refresh. A goroutine that is kept for the next
// one has its stack already, and leaves that of whoever waits small.
//
// What is promised: Run returns when its work has ended, however much there is at a time;
// Start does not wait. A panic in the work is recovered from and counted. Goroutines end
// when there has been nothing to do for a while, when many others have nothing to do, or
// with the pool's context; they are counted in its wait group.
package warm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/background"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

const (
	// idle is how long a goroutine is kept for the next work: in a busy process there is
	// some in every millisecond, and a stack is some 16 KiB.
	idle = time.Second
	// maxIdle is how many are kept. There is one for each of some cores in a busy process;
	// what thousands took who came at once is better given back.
	maxIdle = 64
)

// Pool keeps the goroutines.
type Pool struct {
	ctx   context.Context
	group *background.Group
	tasks chan task
	kept  atomic.Int32
}

type task struct {
	what  string
	f     func()
	ended chan<- struct{} // nil if nobody waits
}

// New makes a pool that lives as long as ctx.
func New(ctx context.Context, wg *sync.WaitGroup) *Pool {
	return &Pool{ctx: ctx, group: background.New(ctx, wg), tasks: make(chan task)}
}

// Run runs f, and returns when it has ended. What names it if it panics.
func (p *Pool) Run(what string, f func()) {
	ended := make(chan struct{})
	t := task{what: what, f: f, ended: ended}
	if !p.hand(t) {
		p.do(t) // at the end of the process it may take as long as it likes
	}
	<-ended
}

// Start runs f, and does not wait for it. It returns false, and does not run f, if the
// pool has ended.
func (p *Pool) Start(what string, f func()) bool { return p.hand(task{what: what, f: f}) }

// hand gives a goroutine something to do.
func (p *Pool) hand(t task) bool {
	select {
	case p.tasks <- t:
		return true
	default:
		return p.group.Go("warm", func(context.Context) { p.work(t) })
	}
}

func (p *Pool) work(t task) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		p.do(t)
		timer.Reset(idle)
		var more bool
		if t, more = p.another(timer.C); !more {
			return
		}
	}
}

// another waits for something to do.
func (p *Pool) another(late <-chan time.Time) (t task, more bool) {
	defer p.kept.Add(-1)
	if p.kept.Add(1) > maxIdle {
		return task{}, false
	}
	select {
	case t = <-p.tasks:
		return t, true
	case <-late:
	case <-p.ctx.Done():
	}
	return task{}, false
}

func (p *Pool) do(t task) {
	if t.ended != nil {
		defer close(t.ended)
	}
	defer guard.Recover(p.ctx, t.what)
	t.f()
}

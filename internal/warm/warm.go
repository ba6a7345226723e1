// Package warm runs short pieces of work on goroutines that have done such work before.
//
// A message passes some thirty frames of decoding and of the chain, and gRPC makes a
// goroutine for each call: its stack grows there by being copied four times over, which
// was a fourteenth of the CPU time of a refresh. A goroutine that is kept for the next
// one has its stack already, and leaves that of whoever waits small.
//
// What is promised: Run returns when its work has ended, however much there is at a time.
// A panic in the work is recovered from and counted. Goroutines end when there has been
// nothing to do for a while, or with the pool's context; they are counted in its wait
// group.
package warm

import (
	"context"
	"sync"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/background"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

// idle is how long a goroutine is kept for the next work: in a busy process there is some
// in every millisecond, and a stack is some 16 KiB.
const idle = time.Second

// Pool keeps the goroutines.
type Pool struct {
	ctx   context.Context
	group *background.Group
	tasks chan task
}

type task struct {
	what  string
	f     func()
	ended chan<- struct{}
}

// New makes a pool that lives as long as ctx.
func New(ctx context.Context, wg *sync.WaitGroup) *Pool {
	return &Pool{ctx: ctx, group: background.New(ctx, wg), tasks: make(chan task)}
}

// Run runs f, and returns when it has ended. What names it if it panics.
func (p *Pool) Run(what string, f func()) {
	ended := make(chan struct{})
	t := task{what: what, f: f, ended: ended}
	select {
	case p.tasks <- t:
	default:
		if !p.group.Go("warm", func(context.Context) { p.work(t) }) {
			p.do(t) // at the end of the process it may take as long as it likes
		}
	}
	<-ended
}

func (p *Pool) work(t task) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		p.do(t)
		timer.Reset(idle)
		select {
		case t = <-p.tasks:
		case <-timer.C:
			return
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *Pool) do(t task) {
	defer close(t.ended)
	defer guard.Recover(p.ctx, t.what)
	t.f()
}

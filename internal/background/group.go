// Package background runs what goes on behind a call.
//
// What is promised: each goroutine is counted in the wait group of its owner, and gets
// its context; a panic in it is recovered from, logged and counted. None is started once
// the context has ended, so that who waits does not wait for ever, and is told so.
package background

import (
	"context"
	"sync"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

// Group starts goroutines for one owner.
type Group struct {
	ctx context.Context
	wg  *sync.WaitGroup

	// mu guards ended. It is a leaf: nothing is called under it.
	mu    sync.Mutex
	ended bool
}

// New makes a group that lives as long as ctx.
func New(ctx context.Context, wg *sync.WaitGroup) *Group {
	g := &Group{ctx: ctx, wg: wg}
	wg.Go(func() {
		<-ctx.Done()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ended = true
	})
	return g
}

// Go runs f on a goroutine. What names it if it panics. It returns false, and does not
// run f, if the group has ended.
func (g *Group) Go(what string, f func(ctx context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.wg.Go(func() {
		defer guard.Recover(g.ctx, what)
		f(g.ctx)
	})
	return true
}

package hop

import (
	"context"
	"time"

	"google.golang.org/grpc/connectivity"
)

const (
	// suspectAfter is how long a call may go unanswered before the hop is
	// checked. Setting up a connection at the far side takes a few hundred
	// milliseconds.
	suspectAfter = 3 * time.Second
	// aliveWithin is how long the answer to that check may take. Together they
	// leave a caller with the SDK's 15 s the time for an attempt at a new
	// connection and a second Request.
	aliveWithin = 4 * time.Second
)

// suspect watches over one call: as long as it is not answered, the peer has to
// show now and then that it is alive. A slow answer of a living peer is left
// alone; the connection to a dead one is replaced, which fails the call. The
// HTTP/2 ping would come to the same end, but later than the caller's deadline.
func (p *Pool) suspect(ctx context.Context, c *conn) (answered func()) {
	if p.opts.ProbeInterval <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(suspectAfter, func() {
		p.background(func() { p.examine(ctx, c) })
	})
	return func() {
		timer.Stop()
		cancel()
	}
}

// Suspect has the peer checked, unless somebody does so already: it did not say in time
// what a living one says at once.
func (h *Handle) Suspect() {
	if h.pool.opts.ProbeInterval <= 0 {
		return
	}
	c := h.hop.conn.Load()
	select {
	case c.examining <- struct{}{}:
	default:
		return
	}
	if !h.pool.background(func() {
		defer func() { <-c.examining }()
		// Not the pool's context: its end is no answer.
		h.pool.alive(context.WithoutCancel(h.pool.ctx), c)
	}) {
		<-c.examining
	}
}

// alive checks the peer. The connection to a dead one is replaced.
func (p *Pool) alive(ctx context.Context, c *conn) bool {
	err := c.check(ctx, aliveWithin)
	if err == nil || c.cc.GetState() != connectivity.Ready {
		return true
	}
	c.hop.facts.failures[Silent].Add(1)
	c.hop.log.Infof("peer does not answer, replacing the connection: %v", err)
	p.replace(c)
	return false
}

// examine checks the peer until the call is answered. One call's checks stand for
// all on the connection; when it is answered, those of the next take over.
func (p *Pool) examine(ctx context.Context, c *conn) {
	select {
	case c.examining <- struct{}{}:
		defer func() { <-c.examining }()
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil && c.cc.GetState() == connectivity.Ready {
		// Not the call's context, nor the pool's, which has ended while calls in
		// flight are waited for: their end is no answer.
		if !p.alive(context.WithoutCancel(ctx), c) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(suspectAfter):
		}
	}
}

package leg

import (
	"context"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

// behindLimit is how long a Close waits for its turn behind its caller. A Request
// takes as long as its own caller likes; by then tokens have run out.
const behindLimit = 10 * time.Minute

// closeBehind closes a leg whose turn the caller of a Close could not wait for. One
// goroutine is enough for all who do.
func (t *Table) closeBehind(conn *networkservice.Connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.legs[conn.GetId()]
	if t.done || !ok {
		return
	}
	first := l.behind == nil
	l.behind = conn
	if !first {
		return
	}
	l.waiters++
	t.wg.Go(func() {
		ctx, cancel := context.WithTimeout(t.ctx, behindLimit)
		defer cancel()
		defer guard.Recover(ctx, "closing behind the caller")
		ok, err := l.waited(ctx)
		conn := l.closeAsked()
		if err != nil || !ok {
			return
		}
		defer l.forsaken()
		defer l.leave()
		if l.established && !l.older(conn, l.last()) {
			l.end(ctx, closed)
		}
	})
}

// closeAsked takes the newest Close that goes on behind its caller.
func (l *Leg) closeAsked() *networkservice.Connection {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	conn := l.behind
	l.behind = nil
	return conn
}

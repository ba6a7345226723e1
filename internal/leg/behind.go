package leg

import (
	"context"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
)

// behindLimit is how long a Close waits for its turn behind its caller. A Request
// takes as long as its own caller likes; by then tokens have run out.
const behindLimit = 10 * time.Minute

// waitingClose is a Close that goes on behind its caller.
type waitingClose struct {
	ctx  context.Context //nolint:containedctx // that of the call, for what it carries
	conn *networkservice.Connection
}

// closeBehind closes a leg whose turn the caller of a Close could not wait for. One
// goroutine is enough for all who do.
func (s *server) closeBehind(ctx context.Context, conn *networkservice.Connection) {
	l, first := s.table.awaitClose(&waitingClose{ctx: context.WithoutCancel(ctx), conn: conn})
	if !first {
		return
	}
	s.table.group.Go("closing behind the caller", func(end context.Context) {
		waiting, cancel := context.WithTimeout(end, behindLimit)
		defer cancel()
		ok, err := l.waited(waiting)
		last := l.closeAsked()
		switch {
		case err != nil:
		case ok && l.established:
			defer l.forsaken()
			defer l.leave()
			if !l.older(last.conn, l.last()) {
				l.end(waiting, closed)
			}
		default:
			// What it waited for has failed, and knew no more of the connection than
			// we do: an earlier process has opened it.
			if ok {
				l.leave()
			}
			s.closeUnknown(end, last)
		}
	})
}

// closeUnknown goes on with a Close whose leg is gone.
func (s *server) closeUnknown(end context.Context, c *waitingClose) {
	if c.conn.GetNextPathSegment() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, orphanRetry)
	defer cancel()
	defer context.AfterFunc(end, cancel)()
	l, err := s.table.enter(ctx, c.conn.GetId(), true)
	if err != nil {
		return
	}
	if l.established {
		l.leave() // requested anew
		return
	}
	_ = s.deliverOrphan(ctx, l, c.conn)
}

// awaitClose notes a Close that waits for a leg, and counts it among those that wait if
// it is the first. It returns false if there is one already, or no leg any more.
func (t *Table) awaitClose(c *waitingClose) (*Leg, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.legs[c.conn.GetId()]
	if !ok {
		return nil, false
	}
	first := l.behind == nil
	l.behind = c
	if first {
		l.waiters++
	}
	return l, first
}

// closeAsked takes the newest Close that goes on behind its caller.
func (l *Leg) closeAsked() *waitingClose {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	c := l.behind
	l.behind = nil
	return c
}

package ledger

import (
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
)

// Started enters a Request or Close that leaves the client.
func (l *Ledger) Started(call domain.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conn(call.Conn)
	c.calls = append(c.calls, call)
}

// Ended enters its answer.
func (l *Ledger) Ended(call domain.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conn(call.Conn)
	for i := range c.calls {
		if c.calls[i].Kind == call.Kind && c.calls[i].Start.Equal(call.Start) {
			c.calls[i] = call
		}
	}
	switch {
	case call.Kind == domain.Refresh && call.Err == nil:
		l.counts.Refreshes++
	case call.Kind == domain.Refresh:
		l.counts.RefreshFailures++
		if l.troubled(call.Start, call.End, false) {
			l.counts.RefreshExcused++
		}
	case call.Kind == domain.Reselect && call.Err == nil:
		l.counts.Heals++
	}
	if call.Kind != domain.Close && call.Err == nil {
		l.followPath(c, call)
	}
}

// Accepted enters a connection that the balancer took, and returns its reason
// as far as one is known.
func (l *Ledger) Accepted(at time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Dials++
	l.accepts = append(l.accepts, at)
	if len(l.cuts) > 0 && at.Sub(l.cuts[len(l.cuts)-1].at) < near {
		return "after the cut"
	}
	for _, c := range l.conns {
		if call, ok := c.underWay(at); ok && call.Kind != domain.Close {
			return "for a " + string(call.Kind) + " Request"
		}
	}
	return ""
}

// Cut enters a connection that the balancer cut.
func (l *Ledger) Cut(at time.Time, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Cuts++
	l.cuts = append(l.cuts, cut{at: at, reason: reason})
}

// Resumed enters a monitor stream that the outbound proxy says it resumed.
func (l *Ledger) Resumed(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Resumes++
	l.resumes = append(l.resumes, at)
}

// EndpointKilled enters the death of the endpoint. Call it before the kill.
func (l *Ledger) EndpointKilled(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaths = append(l.deaths, death{at: at})
}

// EndpointKilledUnheard is EndpointKilled while the way to the outbound proxy is
// broken: the time to its DOWN says nothing.
func (l *Ledger) EndpointKilledUnheard(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaths = append(l.deaths, death{at: at, unheard: true})
}

// EndpointBack enters the end of that death. Call it before the new endpoint
// can be found.
func (l *Ledger) EndpointBack(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.deaths); n > 0 {
		l.deaths[n-1].back = at
	}
}

// Event enters what a monitor stream said of one connection, and returns the
// reason for it as far as one is known.
func (l *Ledger) Event(who Who, id string, at time.Time, kind networkservice.ConnectionEventType, state networkservice.State) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conn(id)
	if c.unseenDown(who, kind, state) {
		kind = networkservice.ConnectionEventType_UPDATE // missed, and as good as heard
	}
	if who == Proxy {
		c.events = append(c.events, event{at: at, kind: kind, state: state})
	}
	deleted := kind == networkservice.ConnectionEventType_DELETE
	c.down[who] = !deleted && state == networkservice.State_DOWN
	c.alive[who] = !deleted && state != networkservice.State_DOWN
	if deleted {
		if c.closing(at) {
			return "client closes"
		}
		return "nobody asked"
	}
	if kind == networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER {
		return "subscribed"
	}
	if state != networkservice.State_DOWN {
		return c.reason(at)
	}
	c.downs[who] = append(c.downs[who], at)
	return l.down(who, at)
}

// down counts a DOWN and returns its reason.
func (l *Ledger) down(who Who, at time.Time) string {
	dead := l.dead(at)
	switch {
	case who == Proxy && dead:
		l.counts.DownTrue++
	case who == Proxy:
		l.counts.DownFalse++
	case dead:
		l.counts.ClientDownTrue++
	case l.troubled(at, at, false):
		l.counts.ClientDownExcused++
		return "a neighbour's own"
	default:
		l.counts.ClientDownFalse++
	}
	if dead {
		return "endpoint killed"
	}
	if n := len(l.cuts); n > 0 && at.Sub(l.cuts[n-1].at) < near {
		return "balancer cut: " + l.cuts[n-1].reason
	}
	return "no cause seen"
}

// reason names the call that an event answers.
func (c *connection) reason(at time.Time) string {
	call, ok := c.underWay(at)
	if !ok {
		return "nobody asked"
	}
	switch call.Kind {
	case domain.Reselect:
		return "heal"
	case domain.Close:
		return "client closes"
	default:
		return string(call.Kind)
	}
}

// underWay returns the latest call that had left and was unanswered at the
// given time, or was answered shortly before.
func (c *connection) underWay(at time.Time) (domain.Call, bool) {
	for i := len(c.calls) - 1; i >= 0; i-- {
		call := c.calls[i]
		if call.Start.After(at) {
			continue
		}
		return call, call.End.IsZero() || at.Sub(call.End) < near
	}
	return domain.Call{}, false
}

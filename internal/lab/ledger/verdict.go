package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
)

// Verdict is the judgement on a run.
type Verdict struct {
	// Held says that every rule of the contract that the run could test held.
	Held bool `json:"contractHeld"`
	// Why names the rules that did not, each once, in a fixed order.
	Why []string `json:"why,omitempty"`
	// UpdatesMin and UpdatesMax are the fewest and the most UPDATE events that
	// the outbound proxy sent for one refresh; both 0 without a refresh.
	UpdatesMin int `json:"updatesPerRefreshMin"`
	UpdatesMax int `json:"updatesPerRefreshMax"`
	// RefreshDials is how many upstream dials nothing but a refresh explains.
	RefreshDials int `json:"dialsCausedByRefresh"`
	// Deletes is how many DELETE events came without the client's Close.
	Deletes int `json:"unaskedDeletes"`
}

// Expect says what a run has to have had for a verdict to mean something.
type Expect struct {
	Refreshes int // at least, over all connections
	Deaths    int // of the endpoint
}

// Reasons that more than one judgement gives.
const (
	falseDown       = "DOWN while the endpoint was alive"
	clientFalseDown = "the client saw DOWN while the endpoint was alive"
	refreshesFailed = "refreshes failed"
)

// Verdict judges the run as entered so far.
func (l *Ledger) Verdict(expect Expect) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &Verdict{UpdatesMin: -1}
	why := make(map[string]int)
	if l.counts.DownFalse > 0 {
		why[falseDown] = l.counts.DownFalse
	}
	if l.counts.ClientDownFalse > 0 {
		why[clientFalseDown] = l.counts.ClientDownFalse
	}
	for text, n := range l.breaches {
		why[text] += n
	}
	for _, c := range l.conns {
		c.sort()
		c.judgeUpdates(v, why, func(time.Time, time.Time) bool { return false })
		c.judgeRest(v, why)
		l.judgeDeaths(c, why)
	}
	v.RefreshDials = l.refreshDials()
	if v.RefreshDials > 0 {
		why["upstream dials caused by a refresh"] = v.RefreshDials
	}
	if l.counts.RefreshFailures > 0 {
		why[refreshesFailed] = l.counts.RefreshFailures
	}
	if l.counts.Refreshes < expect.Refreshes {
		why[fmt.Sprintf("%d refreshes, want %d or more", l.counts.Refreshes, expect.Refreshes)] = 1
	}
	if len(l.deaths) < expect.Deaths {
		why[fmt.Sprintf("%d endpoint deaths, want %d", len(l.deaths), expect.Deaths)] = 1
	}
	v.conclude(why)
	return *v
}

func (c *connection) sort() {
	slices.SortStableFunc(c.calls, func(a, b domain.Call) int { return a.Start.Compare(b.Start) })
	slices.SortStableFunc(c.events, func(a, b event) int { return a.at.Compare(b.at) })
}

// judgeUpdates holds the UPDATEs against the Requests that succeeded: exactly
// one UP for each after the first, none for any other reason. The first is left
// out, since nobody can subscribe before it is answered, and so are times in
// which the stream was not there to be read.
func (c *connection) judgeUpdates(v *Verdict, why map[string]int, unread func(from, to time.Time) bool) {
	asked := c.succeeded()
	for i, call := range asked {
		until := time.Time{}
		if i+1 < len(asked) {
			until = asked[i+1].Start
		}
		if unread(call.Start, cmp.Or(until, time.Now())) {
			continue
		}
		n := c.ups(call.Start, until)
		switch call.Kind {
		case domain.First:
			if n > 1 {
				why["UPDATE that nobody asked for"] += n - 1
			}
		case domain.Refresh:
			if v.UpdatesMin < 0 || n < v.UpdatesMin {
				v.UpdatesMin = n
			}
			v.UpdatesMax = max(v.UpdatesMax, n)
			if n != 1 {
				why["not exactly one UPDATE for a refresh"]++
			}
		case domain.Reselect, domain.Close:
			if n != 1 {
				why["not exactly one UPDATE for a heal"]++
			}
		}
	}
}

// succeeded returns the Requests that were answered without error.
func (c *connection) succeeded() []domain.Call {
	var calls []domain.Call
	for _, call := range c.calls {
		if call.Kind != domain.Close && !call.End.IsZero() && call.Err == nil {
			calls = append(calls, call)
		}
	}
	return calls
}

// ups counts UPDATE, UP from a time to the end of the interval (zero is for
// ever), or to a DOWN or DELETE, which starts a story of its own. One that comes
// before any UP belongs to the story before and was only read late.
func (c *connection) ups(from, until time.Time) int {
	n := 0
	for _, e := range c.events {
		if e.at.Before(from) {
			continue
		}
		if !until.IsZero() && !e.at.Before(until) {
			break
		}
		ends := e.kind == networkservice.ConnectionEventType_DELETE || e.state == networkservice.State_DOWN
		if ends && n > 0 {
			break
		}
		if !ends && e.kind == networkservice.ConnectionEventType_UPDATE && e.state == networkservice.State_UP {
			n++
		}
	}
	return n
}

// judgeRest looks for events that the contract does not have.
func (c *connection) judgeRest(v *Verdict, why map[string]int) {
	for _, e := range c.events {
		switch {
		case e.kind == networkservice.ConnectionEventType_DELETE:
			if !c.closing(e.at) {
				v.Deletes++
				why["DELETE without the client's Close"]++
			}
		case e.state != networkservice.State_UP && e.state != networkservice.State_DOWN:
			why["an event with state "+e.state.String()]++
		}
	}
}

// closing says whether something explains a DELETE at that time: a Close of the
// client, or a Request that failed, for the neighbours close what failed halfway.
// A Close that ended in an error may still be under way behind the client, until
// a Request has succeeded.
func (c *connection) closing(at time.Time) bool {
	explained := false
	for _, call := range c.calls {
		switch {
		case call.Start.After(at):
			return explained
		case call.Kind == domain.Close || call.Err != nil:
			explained = call.Err != nil || call.End.IsZero() || at.Sub(call.End) < near
		case !call.End.IsZero() && call.End.Add(near).Before(at):
			explained = false
		}
	}
	return explained
}

// judgeDeaths wants one DOWN per death, and a heal. Of a connection that was closed
// before the death could be heard nobody is left to be told.
func (l *Ledger) judgeDeaths(c *connection, why map[string]int) {
	for _, d := range l.deaths {
		downs := 0
		for _, e := range c.events {
			within := !e.at.Before(d.at) && (d.back.IsZero() || e.at.Before(d.back))
			if within && e.kind == networkservice.ConnectionEventType_UPDATE && e.state == networkservice.State_DOWN {
				downs++
			}
		}
		if downs != 1 && (downs != 0 || !c.leftUnheard(d)) {
			why[fmt.Sprintf("%d DOWN for the death of the endpoint, want 1", downs)]++
		}
		healed := slices.ContainsFunc(c.calls, func(call domain.Call) bool {
			return call.Kind == domain.Reselect && call.Err == nil && call.End.After(d.at)
		})
		if !healed {
			why["not healed after the death of the endpoint"]++
		}
	}
}

// refreshDials counts the connections accepted while a refresh that succeeded
// was under way and since the last of which nothing had been cut.
func (l *Ledger) refreshDials() int {
	n := 0
	var last time.Time
	for _, at := range slices.SortedFunc(slices.Values(l.accepts), time.Time.Compare) {
		cutSince := slices.ContainsFunc(l.cuts, func(c cut) bool { return c.at.After(last) && c.at.Before(at) })
		if !cutSince && l.refreshing(at) {
			n++
		}
		last = at
	}
	return n
}

func (l *Ledger) refreshing(at time.Time) bool {
	for _, c := range l.conns {
		for _, call := range c.calls {
			if call.Kind == domain.Refresh && call.Start.Before(at) && (call.End.IsZero() || call.End.After(at)) {
				return true
			}
		}
	}
	return false
}

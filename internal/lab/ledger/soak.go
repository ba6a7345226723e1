package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
)

// A soak is judged by the proxy's own stream. What the client sees passes the
// SDK's nsmgr and forwarder, which say DOWN for any stream or Request that
// fails; while they have a reason to, that is their word and not the proxy's.

// The path segments of the two proxies.
const (
	Outbound = 3
	Inbound  = 4
)

// trouble is a time in which the neighbours have reasons of their own. It goes
// on while to is zero.
type trouble struct {
	from, to time.Time
	restart  bool // of the outbound proxy
}

// TroubleBegins enters that from now on the neighbours may say DOWN on their
// own. If the reason is a restart of the outbound proxy, nothing is known of a
// connection there until it says so itself.
func (l *Ledger) TroubleBegins(at time.Time, restart bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.troubles = append(l.troubles, trouble{from: at, restart: restart})
	if !restart {
		return
	}
	for _, c := range l.conns {
		c.alive[Proxy], c.down[Proxy], c.unadopted = false, false, true
	}
}

// TroubleEnds enters the end of it, if there was any.
func (l *Ledger) TroubleEnds(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.troubles); n > 0 && l.troubles[n-1].to.IsZero() {
		l.troubles[n-1].to = at
	}
}

// troubled says whether there was trouble at some time from one time to another.
func (l *Ledger) troubled(from, to time.Time, restartOnly bool) bool {
	return slices.ContainsFunc(l.troubles, func(t trouble) bool {
		return (t.restart || !restartOnly) && !to.Before(t.from) && (t.to.IsZero() || !from.After(t.to))
	})
}

// lostStream is where an upstream monitor stream was.
type lostStream struct {
	proxy int // 0 for the outbound one
	hop   string
}

// StreamLost enters that a proxy says it lost its monitor stream of a segment on
// a hop.
func (l *Ledger) StreamLost(proxy int, hop, segment string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[segment] = lostStream{proxy: proxy, hop: hop}
}

// StreamFound enters that it has it again.
func (l *Ledger) StreamFound(segment string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lost, segment)
}

// Moved enters that the outbound proxy has connected to a hop. If that is at
// another port, the balancer has moved and the streams lost at the old one with
// it, which no line tells of.
func (l *Ledger) Moved(hop string) {
	host := func(hop string) string { return hop[:strings.LastIndexByte(hop, ':')+1] }
	l.forget(func(s lostStream) bool { return s.proxy == 0 && s.hop != hop && host(s.hop) == host(hop) })
}

// ProxyGone enters the death of a proxy: its streams are gone, and no loss.
func (l *Ledger) ProxyGone(proxy int) {
	l.forget(func(s lostStream) bool { return s.proxy == proxy })
}

func (l *Ledger) forget(what func(lostStream) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.lost, func(_ string, s lostStream) bool { return what(s) })
}

// Lost returns how many monitor streams the proxies have lost at the moment.
func (l *Ledger) Lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lost)
}

// followPath takes the path of an answer. The caller holds mu.
func (l *Ledger) followPath(c *connection, call domain.Call) {
	ids := make([]string, 0, len(call.Path.GetPathSegments()))
	for _, segment := range call.Path.GetPathSegments() {
		ids = append(ids, segment.GetId())
	}
	old := c.path
	c.path = ids
	switch {
	case len(old) == 0:
		return
	case call.Kind == domain.Refresh && !slices.Equal(old, ids):
		l.counts.PathChanges++
	case call.Kind == domain.Reselect:
		// Its streams belong to another leg now.
		for _, index := range []int{Outbound, Inbound} {
			if index < len(old) {
				delete(l.lost, old[index])
			}
		}
	}
	if c.unadopted && len(ids) > Inbound && len(old) > Inbound {
		c.unadopted = false
		if slices.Equal(old[:Inbound+1], ids[:Inbound+1]) {
			l.counts.Adopted++
		} else {
			l.counts.NotAdopted++
		}
	}
}

// SoakVerdict judges a soak as entered so far.
func (l *Ledger) SoakVerdict() Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &Verdict{UpdatesMin: -1}
	why := make(map[string]int)
	count := func(n int, text string) {
		if n > 0 {
			why[text] += n
		}
	}
	count(l.counts.DownFalse, falseDown)
	count(l.counts.ClientDownFalse, clientFalseDown)
	count(l.counts.RefreshFailures-l.counts.RefreshExcused, refreshesFailed)
	count(l.counts.PathChanges, "a refresh came back with another path")
	count(l.counts.NotAdopted, "not adopted after a restart of the outbound proxy")
	for text, n := range l.breaches {
		count(n, text)
	}
	for _, c := range l.conns {
		c.sort()
		c.judgeUpdates(v, why, func(from, to time.Time) bool { return l.troubled(from, to, true) })
		c.judgeRest(v, why)
		l.judgeDeaths(c, why)
	}
	v.conclude(why)
	return *v
}

// Breach enters something that the lab itself saw and the contract does not
// have.
func (l *Ledger) Breach(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaches[text]++
}

// Fault enters what the soak does.
func (l *Ledger) Fault(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults[kind]++
}

// Faults returns how often each fault was entered.
func (l *Ledger) Faults() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.faults)
}

// DeathToDown returns the median time, over deaths and connections, from a death
// of the endpoint that could be heard to the DOWN that tells of it. It returns false if there was
// none.
func (l *Ledger) DeathToDown(who Who) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []time.Duration
	for _, c := range l.conns {
		for _, d := range l.deaths {
			if d.unheard {
				continue
			}
			for _, at := range c.downs[who] {
				if !at.Before(d.at) && (d.back.IsZero() || at.Before(d.back)) {
					took = append(took, at.Sub(d.at))
					break
				}
			}
		}
	}
	if len(took) == 0 {
		return 0, false
	}
	slices.Sort(took)
	return (took[(len(took)-1)/2] + took[len(took)/2]) / 2, true
}

// SlowestResume returns the longest time from a cut to the next resume, and how
// many cuts none has followed yet.
func (l *Ledger) SlowestResume() (slowest time.Duration, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cut := range l.cuts {
		i := slices.IndexFunc(l.resumes, func(at time.Time) bool { return !at.Before(cut.at) })
		if i < 0 {
			open++
			continue
		}
		slowest = max(slowest, l.resumes[i].Sub(cut.at))
	}
	return slowest, open
}

// leftUnheard says whether the client has closed the connection because its last refresh
// could not get through to where the death is known: near the end of the far side's
// tokens there is nothing else to answer it with.
func (c *connection) leftUnheard(d death) bool {
	unreached := false
	for _, call := range c.calls {
		switch {
		case !d.unheard || call.Start.Before(d.at) && call.End.Before(d.at):
		case !d.back.IsZero() && call.Start.After(d.back):
			return false
		case call.Kind == domain.Refresh && !call.End.IsZero():
			unreached = unreachable(call.Err)
		case call.Kind == domain.Close && unreached:
			return !slices.ContainsFunc(c.downs[Proxy], func(at time.Time) bool { return at.After(d.at) && at.Before(call.Start) })
		}
	}
	return false
}

// unreachable tells a proxy that could not reach its upstream from one that has the
// far side's answer.
func unreachable(err error) bool {
	return err != nil && strings.Contains(err.Error(), "code = Unavailable desc = request: hop: ")
}

// unseenDown says whether an initial state tells of a DOWN that nobody has seen: one
// from between two streams.
func (c *connection) unseenDown(who Who, kind networkservice.ConnectionEventType, state networkservice.State) bool {
	return kind == networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER &&
		state == networkservice.State_DOWN && !c.down[who]
}

// conclude writes the reasons into the verdict.
func (v *Verdict) conclude(why map[string]int) {
	for text, n := range why {
		if n > 1 {
			text = fmt.Sprintf("%s (%d times)", text, n)
		}
		v.Why = append(v.Why, text)
	}
	slices.SortFunc(v.Why, strings.Compare)
	v.Held = len(v.Why) == 0
	v.UpdatesMin = max(v.UpdatesMin, 0)
}

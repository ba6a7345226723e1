// Package scenario is the experiment of the lab: two domains, a balancer that
// cuts what is idle, and a client that must not notice.
//
// Run owns everything it starts. It returns when all of it has ended, children
// and temporary folder included, also when its context ends or a step fails.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
)

const (
	// shortIdle is below what a real balancer has as its limit. For shorter
	// limits the probe interval has to be set; from here on its default serves.
	shortIdle = 60 * time.Second
	// refreshShare is the share of a token's lifetime after which a client
	// refreshes.
	refreshShare = 5
	// refreshesPerIdle keeps the proportion of the field: tokens of 10 min are
	// refreshed every 2 min behind balancers that cut after 1 min.
	refreshesPerIdle = 2
	// minTokenLifetime keeps a registration alive, which ends 15 s before its
	// token and is renewed at two thirds of it.
	minTokenLifetime = 75 * time.Second
	// refreshPerConnection makes the client refresh no sooner than all of its
	// connections are there, for the CPU of Requests and refreshes is to be told
	// apart. A stock chain takes about 0.2 s for each on a slow machine.
	refreshPerConnection = 400 * time.Millisecond
	// establishTimeout bounds everything up to the first connection.
	establishTimeout = 60 * time.Second
	// perConnection is what each connection adds to a bound. They are set up and
	// healed one by one, or share the machine's cores.
	perConnection = 300 * time.Millisecond
	// healTimeout bounds the wait for a heal: some tries of the client's 15 s.
	healTimeout = 60 * time.Second
	// downTimeout bounds the wait for the DOWN of a death, which the contract
	// wants at once and a stock chain needs a few tries for.
	downTimeout = 15 * time.Second
	// settle is how long the lab watches for a DOWN that must not come.
	settle = 3 * time.Second
)

// Options are the knobs of a run.
type Options struct {
	Name          string         // of the run, for the table
	ProxyPath     string         // the binary to run as nsmgr-proxy
	ProxyArgs     []string       // its arguments
	Idle          time.Duration  // the balancer's limit
	For           time.Duration  // how long the idle phase lasts
	Connections   int            // how many
	Refresh       time.Duration  // how often the client refreshes, at least 15s; 0: twice the limit
	ProbeInterval *time.Duration // nil: a quarter of a short limit, else the default
	Cuts          int            // end the idle phase after that many cuts, in For at the latest; 0: it lasts For
	OnlyIdle      bool           // end after the idle phase: no outright cut, no death
	Soak          time.Duration  // instead of all that, faults for that long; 0: no soak
	Seed          uint64         // what the faults are drawn from
	LogDir        string         // keep logs there; empty: in the temporary folder
}

// TokenLifetime is the lifetime of every token in the run.
func (o *Options) TokenLifetime() time.Duration {
	if o.Refresh > 0 {
		return max(minTokenLifetime, refreshShare*o.Refresh)
	}
	return max(minTokenLifetime, refreshShare*refreshesPerIdle*o.Idle,
		refreshShare*refreshPerConnection*time.Duration(o.Connections))
}

// RefreshInterval is the time after which the client's refresh element renews.
func (o *Options) RefreshInterval() time.Duration { return o.TokenLifetime() / refreshShare }

// proxyProbe returns the probe interval to set and whether to set one.
func (o *Options) proxyProbe() (time.Duration, bool) {
	switch {
	case o.ProbeInterval != nil:
		return *o.ProbeInterval, true
	case o.Idle > 0 && o.Idle < shortIdle:
		return o.Idle / 4, true
	default:
		return 0, false
	}
}

// proxyLevel returns the level of the proxies' logs. At DEBUG ours have a line for each
// stream that was lost; stock has kilobytes for each Request.
func (o *Options) proxyLevel() string {
	if len(o.ProxyArgs) > 0 {
		return "INFO"
	}
	return "DEBUG"
}

// Line is something that happened, for whoever watches.
type Line struct {
	At     time.Duration // since the start of the run
	Who    ledger.Who
	Event  string
	State  string
	Hop    string
	Reason string
}

// Watcher is told of a run as it goes. Its methods are called one at a time.
type Watcher interface {
	// Line shows one event.
	Line(line *Line)
	// Counts shows the numbers so far.
	Counts(at time.Duration, counts ledger.Counts)
}

// Run runs the experiment. The Summary is valid if the error is nil.
func Run(ctx context.Context, options *Options, watcher Watcher) (summary *Summary, err error) {
	l, err := newLab(ctx, options, watcher)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		err = errors.Join(err, l.close(err, ctx.Err() == nil))
	}()

	if err = l.within(l.patience(establishTimeout), l.establish); err != nil {
		return nil, fmt.Errorf("not connected within %s: %w", l.patience(establishTimeout), err)
	}
	phases := []func() error{l.idle, l.cutOutright, l.killAndHeal}
	switch {
	case options.Soak > 0:
		phases = []func() error{l.soak}
	case options.OnlyIdle:
		phases = phases[:1]
	}
	for _, phase := range phases {
		if err = phase(); err != nil {
			return nil, err
		}
	}
	return l.summary(), nil
}

package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
)

// idle lets the balancer cut what is idle, for a time or for a number of cuts.
func (l *lab) idle() error {
	before, refreshes := l.meter(), l.book.Counts().Refreshes
	l.relay.SetIdle(l.options.Idle)
	if l.options.Cuts == 0 {
		if err := l.sleep(l.options.For); err != nil {
			return err
		}
		l.cost.refreshing(before, l.meter(), l.book.Counts().Refreshes-refreshes)
		return nil
	}
	enough := func() bool { return l.book.Counts().Cuts >= l.options.Cuts }
	if err := l.want(l.options.For, fmt.Sprintf("%d cuts", l.options.Cuts), enough); err != nil {
		return err
	}
	// What the last cut brought about has to be seen, too, and not the next.
	l.relay.SetIdle(0)
	if err := l.sleep(settle); err != nil {
		return err
	}
	resumed := func() bool {
		_, unresumed := l.book.SlowestResume()
		return unresumed == 0 || l.book.Counts().Resumes == 0 // a stock chain resumes nothing
	}
	if err := l.want(healTimeout, "every cut resumed", resumed); err != nil {
		return err
	}
	return l.awaitAlive("every connection UP after the last cut")
}

// cutOutright cuts every connection between the proxies at once, and watches
// what comes of it.
func (l *lab) cutOutright() error {
	if err := l.awaitAlive("every connection UP before the outright cut"); err != nil {
		return err
	}
	l.say(ledger.Lab, "CUT ALL", "", "3-4", "balancer restarts")
	l.relay.CutAll()
	if err := l.sleep(settle); err != nil {
		return err
	}
	return l.awaitAlive("every connection UP after the outright cut")
}

// killAndHeal kills the endpoint, which is a loss that must be reported, and
// starts another one, to which the client must heal.
func (l *lab) killAndHeal() error {
	heals := l.book.Counts().Heals
	l.say(ledger.Lab, "KILL", "", "7", "endpoint dies")
	l.book.EndpointKilled(time.Now())
	l.kill()
	downs := func() bool { return l.book.Counts().DownTrue >= l.options.Connections }
	if err := l.want(l.patience(downTimeout), "a DOWN for the death of the endpoint", downs); err != nil {
		return err
	}
	// Long enough for a second DOWN, which must not come.
	if err := l.sleep(settle); err != nil {
		return err
	}

	if err := l.replaceEndpoint(); err != nil {
		return err
	}
	healed := func() bool { return l.book.Counts().Heals >= heals+l.options.Connections }
	if err := l.want(l.patience(healTimeout), "a heal to the other endpoint", healed); err != nil {
		return err
	}
	if err := l.awaitAlive("every connection UP after the heal"); err != nil {
		return err
	}
	return l.sleep(settle)
}

// replaceEndpoint starts the next endpoint in the place of the dead one.
func (l *lab) replaceEndpoint() error {
	l.book.EndpointBack(time.Now())
	l.say(ledger.Lab, "START", "", "7", "another endpoint")
	return l.within(healTimeout, func(ctx context.Context) (err error) {
		l.endpoints++
		l.kill, err = l.domains[1].StartEndpoint(ctx, fmt.Sprintf("endpoint-%d", l.endpoints), service)
		return err
	})
}

// want is await for what the contract has. If it does not come, that is for the
// verdict, and the run goes on.
func (l *lab) want(bound time.Duration, what string, condition func() bool) error {
	err := l.await(bound, what, condition)
	if err == nil || l.ctx.Err() != nil {
		return err
	}
	l.say(ledger.Lab, "NOT IN TIME", "", "", what)
	l.book.Breach("not in time: " + what)
	return nil
}

// patience is a bound for one connection, made longer for many.
func (l *lab) patience(bound time.Duration) time.Duration {
	return bound + time.Duration(l.options.Connections)*perConnection
}

// awaitAlive waits until no stream said last that its connection is gone. A
// stock chain says RESELECT_REQUESTED after a heal, which is for the verdict to
// condemn and means that the connection is there.
func (l *lab) awaitAlive(what string) error {
	return l.want(l.patience(healTimeout), what, l.alive)
}

func (l *lab) alive() bool {
	for _, id := range l.observer.ids() {
		for _, who := range []ledger.Who{ledger.Client, ledger.Proxy} {
			if !l.book.Alive(who, id) {
				return false
			}
		}
	}
	return true
}

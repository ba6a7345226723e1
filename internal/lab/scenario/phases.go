package scenario

import (
	"context"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
)

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
	if err := l.await(downTimeout, "a DOWN for the death of the endpoint", downs); err != nil {
		return err
	}
	// Long enough for a second DOWN, which must not come.
	if err := l.sleep(settle); err != nil {
		return err
	}

	l.book.EndpointBack(time.Now())
	l.say(ledger.Lab, "START", "", "7", "another endpoint")
	err := l.within(healTimeout, func(ctx context.Context) (err error) {
		l.kill, err = l.domains[1].StartEndpoint(ctx, "endpoint-2", service)
		return err
	})
	if err != nil {
		return err
	}
	healed := func() bool { return l.book.Counts().Heals >= heals+l.options.Connections }
	if err = l.await(healTimeout, "a heal to the other endpoint", healed); err != nil {
		return err
	}
	if err = l.awaitAlive("every connection UP after the heal"); err != nil {
		return err
	}
	return l.sleep(settle)
}

// awaitAlive waits until no stream said last that its connection is gone. A
// stock chain says RESELECT_REQUESTED after a heal, which is for the verdict to
// condemn and means that the connection is there.
func (l *lab) awaitAlive(what string) error {
	return l.await(healTimeout, what, func() bool {
		for _, id := range l.observer.ids() {
			for _, who := range []ledger.Who{ledger.Client, ledger.Proxy} {
				if !l.book.Alive(who, id) {
					return false
				}
			}
		}
		return true
	})
}

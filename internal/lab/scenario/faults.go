package scenario

import (
	"context"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/fault"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	// shrunkIdle is below the probe interval of a soak, so that connections are
	// cut again and again.
	shrunkIdle = time.Second
	// grownIdle is above everything else in a soak.
	grownIdle = 5 * time.Minute
	// soakLag makes a round trip of what is far on this planet, twice.
	soakLag = 300 * time.Millisecond
)

// apply does what goes wrong and returns when it is over, though not what came
// of it.
func (l *lab) apply(f fault.Fault) error {
	switch f.Kind {
	case fault.IdleShrinks:
		return l.limit(shrunkIdle, f.Lasts)
	case fault.IdleGrows:
		return l.limit(grownIdle, f.Lasts)
	case fault.Cut:
		l.relay.CutAll()
	case fault.Reset:
		l.relay.ResetAll()
	case fault.Refuse:
		return l.refuse(l.relay, f.Lasts)
	case fault.Blackhole:
		return l.swallow(l.relay, f.Lasts, lbtest.Upwards, lbtest.Downwards)
	case fault.BlackholeUp:
		return l.swallow(l.relay, f.Lasts, lbtest.Upwards)
	case fault.BlackholeDown:
		return l.swallow(l.relay, f.Lasts, lbtest.Downwards)
	case fault.Lag:
		return l.lag(f.Lasts)
	case fault.Move, fault.Drain:
		return l.move(f.Lasts)
	case fault.KillOutbound:
		return l.restart(f.Lasts, 0)
	case fault.KillInbound:
		return l.restart(f.Lasts, 1)
	case fault.KillBoth:
		return l.restart(f.Lasts, 0, 1)
	case fault.InnerCut:
		l.inner.CutAll()
	case fault.InnerReset:
		l.inner.ResetAll()
	case fault.InnerRefuse:
		return l.refuse(l.inner, f.Lasts)
	case fault.InnerBlackhole:
		return l.swallow(l.inner, f.Lasts, lbtest.Upwards, lbtest.Downwards)
	case fault.Death:
		return l.die(f.Lasts)
	case fault.DeathUnheard:
		return l.dieUnheard(f.Lasts)
	}
	return nil
}

func (l *lab) limit(idle, lasts time.Duration) error {
	l.relay.SetIdle(idle)
	defer l.relay.SetIdle(l.options.Idle)
	return l.sleep(lasts)
}

func (l *lab) lag(lasts time.Duration) error {
	l.relay.SetLag(soakLag)
	defer l.relay.SetLag(0)
	return l.sleep(lasts)
}

func (l *lab) refuse(relay *lbtest.Relay, lasts time.Duration) error {
	relay.SetRefuse(true)
	defer relay.SetRefuse(false)
	relay.CutAll()
	return l.sleep(lasts)
}

func (l *lab) swallow(relay *lbtest.Relay, lasts time.Duration, ways ...lbtest.Way) error {
	set := func(on bool) {
		for _, way := range ways {
			relay.SetBlackholeWay(way, on)
		}
	}
	set(true)
	defer set(false)
	return l.sleep(lasts)
}

// move gives the balancer another address. The old one serves who is there for
// a while, and then is gone.
func (l *lab) move(drains time.Duration) error {
	old := l.relay
	if err := l.openRelay(); err != nil {
		return err
	}
	l.relay.SetIdle(l.options.Idle)
	if err := l.publishRelay(); err != nil {
		return err
	}
	if err := l.sleep(drains); err != nil {
		return err
	}
	return old.Close()
}

// restart kills proxies and starts them again with the same settings.
func (l *lab) restart(gone time.Duration, numbers ...int) error {
	for _, number := range numbers {
		if number == 0 {
			l.book.TroubleBegins(time.Now(), true)
		}
		l.killProxy(number)
		l.book.ProxyGone(number)
	}
	if err := l.sleep(gone); err != nil {
		return err
	}
	for _, number := range numbers {
		if err := l.startProxy(number); err != nil {
			return err
		}
	}
	return l.within(establishTimeout, func(ctx context.Context) error {
		for _, number := range numbers {
			if err := l.awaitProxy(ctx, number); err != nil {
				return err
			}
		}
		return nil
	})
}

// die kills the endpoint and starts another one after a while, not before the
// proxy has told of the death.
func (l *lab) die(lasts time.Duration) error {
	began, before := time.Now(), l.mourned()
	l.book.TroubleBegins(began, false)
	l.book.EndpointKilled(began)
	l.kill()
	return l.mourn(began, before, lasts)
}

// dieUnheard is die in a black hole: the DOWN can only be seen behind it.
func (l *lab) dieUnheard(lasts time.Duration) error {
	began, before := time.Now(), l.mourned()
	l.book.TroubleBegins(began, false)
	l.relay.SetBlackhole(true)
	defer l.relay.SetBlackhole(false)
	l.book.EndpointKilledUnheard(began)
	l.kill()
	if err := l.sleep(lasts); err != nil {
		return err
	}
	l.relay.SetBlackhole(false)
	return l.mourn(began, before, lasts)
}

// mourned counts the connections of which a death has been told, or that were closed before
// it could be.
func (l *lab) mourned() int {
	counts := l.book.Counts()
	return counts.DownTrue + counts.LeftUnheard
}

// mourn waits for the DOWN of a death, and until the next endpoint is there.
func (l *lab) mourn(began time.Time, before int, lasts time.Duration) error {
	told := func() bool { return l.mourned() >= before+l.options.Connections }
	if err := l.want(l.patience(backTimeout), "a DOWN for the death of the endpoint", told); err != nil {
		return err
	}
	if err := l.sleep(time.Until(began.Add(lasts))); err != nil {
		return err
	}
	return l.replaceEndpoint()
}

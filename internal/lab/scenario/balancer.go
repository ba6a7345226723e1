package scenario

import (
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	outerHop = "3-4" // the path segments on either side
	innerHop = "4-5"
)

// startBalancer puts the relay in front of the second domain's proxy and
// publishes the addresses: the proxy of that domain is where the relay is. The
// idle limit comes when there are connections to cut.
func (l *lab) startBalancer() error {
	if err := l.openRelay(); err != nil {
		return err
	}
	for _, d := range l.domains {
		if err := l.dns.Publish("registry", d.Name(), d.RegistryURL.Host); err != nil {
			return err
		}
	}
	if err := l.dns.Publish(proxyService, l.domains[0].Name(), l.domains[0].ProxyURL.Host); err != nil {
		return err
	}
	return l.publishRelay()
}

// openRelay makes another relay the balancer, at an address that nobody knows.
// The one before stays open.
func (l *lab) openRelay() error {
	relay, err := lbtest.Listen(l.domains[1].Outside().String()+":0", l.domains[1].ProxyURL.Host,
		lbtest.WithOnCut(func(reason string) {
			l.book.Cut(time.Now(), reason)
			l.say(ledger.Balancer, "CUT", "", outerHop, reason)
		}),
		lbtest.WithOnAccept(func() {
			l.say(ledger.Balancer, "DIAL", "", outerHop, l.book.Accepted(time.Now()))
		}))
	if err != nil {
		return err
	}
	l.relay = relay
	l.relays = append(l.relays, relay)
	return nil
}

func (l *lab) publishRelay() error {
	return l.dns.Publish(proxyService, l.domains[1].Name(), l.relay.Addr())
}

// startInner puts a relay in front of the second domain's nsmgr.
func (l *lab) startInner(nsmgr string) (string, error) {
	relay, err := lbtest.Listen(l.domains[1].Inside().String()+":0", nsmgr, lbtest.WithOnCut(func(reason string) {
		l.say(ledger.Balancer, "CUT", "", innerHop, reason)
	}))
	if err != nil {
		return "", err
	}
	l.inner = relay
	l.relays = append(l.relays, relay)
	return relay.Addr(), nil
}

package scenario

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
)

const (
	service = "lab"
	// pathLength is the number of segments from client to endpoint.
	pathLength = 8
)

// establish brings everything up, in the order in which it needs one another.
func (l *lab) establish(ctx context.Context) error {
	if err := l.startDomains(); err != nil {
		return err
	}
	if err := l.startBalancer(); err != nil {
		return err
	}
	for number := range l.domains {
		if err := l.prepareProxy(number); err != nil {
			return err
		}
		if err := l.startProxy(number); err != nil {
			return err
		}
	}
	for number := range l.domains {
		if err := l.awaitProxy(ctx, number); err != nil {
			return err
		}
	}
	for number, direction := range []domain.Direction{domain.Outwards, domain.Inwards} {
		if err := l.domains[number].StartNode(ctx, direction); err != nil {
			return err
		}
	}
	var err error
	if l.kill, err = l.domains[1].StartEndpoint(ctx, "endpoint-1", service); err != nil {
		return err
	}
	l.endpoints = 1
	return l.connect(ctx)
}

func (l *lab) startDomains() error {
	var err error
	for i := range l.cas {
		if l.cas[i], err = identitytest.NewCA(fmt.Sprintf("nsm.cluster%d", i+1)); err != nil {
			return err
		}
	}
	if l.dns, err = domain.StartDNS(); err != nil {
		return err
	}
	for i := range l.domains {
		config := &domain.Config{
			Number:        i + 1,
			CA:            l.cas[i],
			Federated:     []*identitytest.CA{l.cas[1-i]},
			TokenLifetime: l.options.TokenLifetime(),
			Resolver:      l.dns.Resolver(),
			KubernetesAPI: i == 1, // one domain of each kind
		}
		if i == 1 && l.options.Soak > 0 {
			config.Front = l.startInner
		}
		if l.domains[i], err = domain.Start(l.ctx, config); err != nil {
			return err
		}
	}
	return nil
}

// connect makes the connections, one after the other, and starts to watch them
// once all are there: so the proxies have no work but that of Requests before.
func (l *lab) connect(ctx context.Context) error {
	var err error
	if l.observer, err = newObserver(l); err != nil {
		return err
	}
	if l.client, err = l.domains[0].NewClient(l.book.Started, l.observer.answered); err != nil {
		return err
	}
	run := rand.Text()
	before := l.meter()
	for i := range l.options.Connections {
		conn, err := l.client.Connect(ctx, fmt.Sprintf("lab-%s-%d", run, i+1), service+"@"+l.domains[1].Name())
		if err != nil {
			return err
		}
		l.segments = len(conn.GetPath().GetPathSegments())
		if l.segments != pathLength {
			return fmt.Errorf("lab: connection %d has %d path segments, want %d", i+1, l.segments, pathLength)
		}
	}
	after := l.meter()
	l.cost.establishing(before, after, l.options.Connections)
	l.observer.begin()
	if err = l.observer.awaitSubscribed(ctx, l.options.Connections); err != nil {
		return err
	}
	there, back := l.domains[1].Tunnel().PeerSource, l.domains[0].Tunnel().PeerDestination
	l.say(ledger.Client, "ESTABLISHED", "UP", fmt.Sprintf("0-%d", pathLength-1), "tunnel "+there+" > "+back)
	if there != l.domains[0].Outside().String() || back != l.domains[1].Outside().String() {
		return fmt.Errorf("lab: tunnel addresses %q and %q, want the outside ones, %s and %s",
			there, back, l.domains[0].Outside(), l.domains[1].Outside())
	}
	return nil
}

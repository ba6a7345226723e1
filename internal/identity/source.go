// Package identity is who this process is: an X.509 SVID and the bundles it
// trusts, kept current by the SPIFFE Workload API, and what TLS and tokens are
// made of.
//
// Under failure: an agent that is not there yet, or that has no entry for us
// yet, is waited for. An agent that goes away later costs nothing while the
// last SVID is valid; it is used until a newer one arrives, also past its
// expiry, when peers begin to refuse it. No answer of the agent ends the watch.
package identity

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// minRetry to maxRetry is the pause between attempts at the Workload
	// API. go-spiffe's own goes up to 30 s over a connection that gRPC backs
	// off up to 120 s, so an agent that is back would stay unnoticed for two
	// minutes. Each attempt makes the agent attest us, which it can bear
	// every five seconds.
	minRetry = 500 * time.Millisecond
	maxRetry = 5 * time.Second
)

// Source is the identity of this process. It is safe for concurrent use.
type Source struct {
	client *workloadapi.Client
	cancel context.CancelFunc
	done   chan struct{}
	first  chan struct{} // closed when the first SVID is there

	close    sync.Once
	closeErr error // written by close

	mu      sync.RWMutex
	current *workloadapi.X509Context // guarded by mu; nil before the first
	lastErr error                    // guarded by mu; nil while the watch is well
	changed chan struct{}            // guarded by mu; closed and replaced when the SVID changes
}

var (
	_ x509svid.Source   = (*Source)(nil)
	_ x509bundle.Source = (*Source)(nil)
)

// Open connects to the Workload API at addr (unix:///path or tcp://ip:port) and
// returns when the first SVID has arrived. It waits until ctx ends for an agent
// that is missing or refuses; its error then wraps the context's and tells what
// the agent last said. An addr that cannot be one fails at once. The Source
// outlives ctx: it ends with Close.
func Open(ctx context.Context, addr string) (*Source, error) {
	client, err := workloadapi.New(ctx,
		workloadapi.WithAddr(addr),
		workloadapi.WithBackoffStrategy(retry{}),
		workloadapi.WithDialOptions(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: minRetry, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxRetry},
		})),
	)
	if err != nil {
		return nil, fmt.Errorf("identity: workload API %q: %w", addr, err)
	}
	watchCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Source{client: client, cancel: cancel, done: make(chan struct{}), first: make(chan struct{}), changed: make(chan struct{})}
	go s.watch(watchCtx, addr)

	select {
	case <-s.first:
		return s, nil
	case <-ctx.Done():
		_ = s.Close()
		err = context.Cause(ctx)
		if s.lastErr != nil {
			err = fmt.Errorf("%w; last answer: %w", err, s.lastErr)
		}
		return nil, fmt.Errorf("identity: no SVID from %q: %w", addr, err)
	}
}

// watch keeps the identity current until ctx ends. go-spiffe gives up for good
// when the agent answers Canceled or InvalidArgument, which an agent does that
// is shut down, or a proxy in front of it; the SVID would then run out unseen.
func (s *Source) watch(ctx context.Context, addr string) {
	defer close(s.done)
	w := watcher{source: s, logger: log.FromContext(ctx), addr: addr, closed: func() bool { return ctx.Err() != nil }}
	pause := retry{}.NewBackoff()
	for ctx.Err() == nil {
		_ = s.client.WatchX509Context(ctx, &w)
		select {
		case <-ctx.Done():
		case <-time.After(pause.Next()):
		}
	}
}

// GetX509SVID returns the newest SVID, also when it has expired.
func (s *Source) GetX509SVID() (*x509svid.SVID, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.current.DefaultSVID(), nil
}

// GetX509BundleForTrustDomain returns the newest bundle of td. It fails if the
// agent does not federate with td.
func (s *Source) GetX509BundleForTrustDomain(td spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.current.Bundles.GetX509BundleForTrustDomain(td)
}

// ID returns the SPIFFE ID, for instance spiffe://domain/path.
func (s *Source) ID() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.current.DefaultSVID().ID.String()
}

// Current names the certificate in use, differently after each rotation, and
// tells when it ends.
func (s *Source) Current() (name string, notAfter time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	certificate := s.current.DefaultSVID().Certificates[0]
	return certificate.SerialNumber.Text(16), certificate.NotAfter
}

// Changed returns a channel that is closed at the next rotation.
func (s *Source) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Close ends the watch and waits for it. The last SVID stays usable, so that
// connections can be drained after it. It may be called more than once.
func (s *Source) Close() error {
	s.close.Do(func() {
		s.cancel()
		<-s.done
		if err := s.client.Close(); err != nil {
			s.closeErr = fmt.Errorf("identity: close: %w", err)
		}
	})
	return s.closeErr
}

// retry is the pause between attempts: doubled from minRetry to maxRetry.
type retry struct{}

func (retry) NewBackoff() workloadapi.Backoff { return &doubling{next: minRetry} }

type doubling struct{ next time.Duration }

func (d *doubling) Next() time.Duration {
	pause := d.next
	d.next = min(2*d.next, maxRetry)
	return pause
}

func (d *doubling) Reset() { d.next = minRetry }

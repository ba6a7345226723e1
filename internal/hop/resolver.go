package hop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
)

const (
	// lookupTimeout bounds one look-up. Go's resolver gives a name server 5 s by
	// default: a shorter bound would never get to the second one, and with a
	// longer one a dead server takes all search domains of a pod in turn.
	lookupTimeout = 6 * time.Second
	// minResolution is the least time from the end of a look-up that was asked for
	// to the next: each failed attempt at an address asks for one.
	minResolution = time.Second
)

// names is gRPC's source of addresses for host names, in the place of gRPC's own:
// that one lets 30 s pass between two look-ups, and backs off for up to 2 min
// after one that failed, while the grace is 30 s.
//
// All addresses of a name go to gRPC, which tries every one. A name is looked up
// when the connection is made and whenever it, or an attempt at it, has failed;
// what has failed is looked up again after a pause of at most maxBackoff. While
// the connection is up nothing is looked up and nothing told to gRPC: it would leave
// an address that has gone from the answer, and what works is not to move. An answer without an address
// is a failure, and after a failure gRPC goes on with the addresses that it has.
type names struct {
	lookupHost func(ctx context.Context, host string) ([]string, error)
	maxBackoff time.Duration
	conn       func() *grpc.ClientConn // for whom; not before Build
	log        log.Logger
}

var _ resolver.Builder = (*names)(nil)

// Scheme implements resolver.Builder.
func (*names) Scheme() string { return nameScheme }

// Build implements resolver.Builder.
func (n *names) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	host, port, err := net.SplitHostPort(target.Endpoint())
	if err != nil {
		return nil, fmt.Errorf("hop: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // ends with Close
	r := &name{
		names: n, host: host, port: port, cc: cc,
		asked: make(chan struct{}, 1), cancel: cancel, ended: make(chan struct{}),
	}
	go func() {
		defer close(r.ended)
		r.follow(ctx)
	}()
	return r, nil
}

// name follows one name for one connection.
type name struct {
	*names
	host, port string
	cc         resolver.ClientConn
	asked      chan struct{}
	cancel     context.CancelFunc
	ended      chan struct{}

	// told are the addresses that gRPC has, sorted. The follower's own.
	told []string
}

// ResolveNow implements resolver.Resolver.
func (r *name) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case r.asked <- struct{}{}:
	default: // one token is enough
	}
}

// Close implements resolver.Resolver.
func (r *name) Close() {
	r.cancel()
	<-r.ended
}

func (r *name) follow(ctx context.Context) {
	shortest := min(baseBackoff, r.maxBackoff)
	pause, failures := shortest, 0
	for r.unconnected(ctx) {
		hosts, err := r.lookup(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case r.conn().GetState() == connectivity.Ready:
			err = nil // nobody waits for the answer any more
		case err == nil:
			err = r.tell(hosts)
		}
		var again <-chan time.Time
		if err == nil {
			pause, failures = shortest, 0
		} else {
			r.report(err, failures)
			again = time.After(jittered(pause))
			pause, failures = min(pause*8/5, r.maxBackoff), failures+1
		}
		if !r.rest(ctx, again) {
			return
		}
	}
}

// unconnected waits while the connection is up. It returns false at the end.
func (r *name) unconnected(ctx context.Context) bool {
	conn := r.conn()
	for conn.GetState() == connectivity.Ready {
		conn.WaitForStateChange(ctx, connectivity.Ready)
		if ctx.Err() != nil {
			break
		}
	}
	return ctx.Err() == nil
}

// rest returns when the time for another look-up has come, or false at the end.
func (r *name) rest(ctx context.Context, again <-chan time.Time) bool {
	apart := time.After(minResolution)
	select {
	case <-ctx.Done():
		return false
	case <-again:
		return true
	case <-r.asked:
	}
	select {
	case <-ctx.Done():
		return false
	case <-again:
	case <-apart:
	}
	return true
}

// jittered keeps the hops that lost their names together from asking together. It
// makes a pause no longer.
func jittered(pause time.Duration) time.Duration {
	return pause - time.Duration(jitter*rand.Float64()*float64(pause))
}

func (r *name) lookup(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts, err := r.lookupHost(ctx, r.host)
	switch {
	case err == nil && len(hosts) == 0:
		err = errors.New("no address")
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("no answer within %s: %w", lookupTimeout, err)
	}
	return hosts, err
}

// tell hands the addresses to gRPC, unless it has them: it would begin anew with the
// first of them, and might never get to the last.
func (r *name) tell(hosts []string) error {
	sorted := slices.Sorted(slices.Values(hosts))
	if slices.Equal(sorted, r.told) {
		return nil
	}
	addresses := make([]resolver.Address, len(hosts))
	for i, host := range hosts {
		addresses[i].Addr = net.JoinHostPort(host, r.port)
	}
	if err := r.cc.UpdateState(resolver.State{Addresses: addresses}); err != nil {
		return err
	}
	r.told = sorted
	return nil
}

func (r *name) report(err error, failures int) {
	say := r.log.Debugf
	if failures == 0 {
		say = r.log.Infof
	}
	say("looking up %s: %v", r.host, err)
	r.cc.ReportError(err)
}

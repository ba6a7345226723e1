// Package load is the neighbour in front of the proxy: it establishes legs,
// subscribes to them as forwarders do, refreshes them in rounds, and counts what
// comes back.
//
// A leg whose Request fails counts as an error and is asked for again in the
// next round. Close ends all streams and connections and waits for them.
package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
)

// Mode is how the neighbour connects.
type Mode string

const (
	// Shared is one connection for all legs, and a monitor stream of each that
	// stays: what a proxy of ours does towards the next.
	Shared Mode = "shared"
	// Redial is a connection for each leg that is closed and dialled again, with
	// its stream, at each refresh: what the SDK's forwarders do.
	Redial Mode = "redial"
)

const (
	// callTime is what the SDK gives a caller's try.
	callTime = 15 * time.Second
	// initialTime bounds the wait for a stream's initial state.
	initialTime = 10 * time.Second
)

// Options describe a load.
type Options struct {
	Mode    Mode
	Role    neighbours.Role
	Target  string // host:port of the proxy
	From    *neighbours.Identity
	First   int // number of the first leg, which its ids are made of
	Legs    int
	Callers int // calls at the same time
	// Progress is told how many of how many legs are done. It is called from
	// several goroutines, and may be nil.
	Progress func(what string, done, of int)
}

// Load is a neighbour with its legs.
type Load struct {
	options Options
	shared  *grpc.ClientConn // nil if every leg has its own
	legs    []*leg

	errors, handshakes atomic.Int64
	events             events

	// mu guards the following fields.
	mu        sync.Mutex
	latencies []time.Duration
	firstErr  error
}

// New makes a load that has not done anything yet.
func New(options *Options) (*Load, error) {
	l := &Load{options: *options}
	for n := range options.Legs {
		l.legs = append(l.legs, &leg{load: l, number: options.First + n})
	}
	if options.Mode == Shared {
		cc, err := l.dial()
		if err != nil {
			return nil, err
		}
		l.shared = cc
	}
	return l, nil
}

func (l *Load) dial() (*grpc.ClientConn, error) {
	cc, err := grpc.NewClient("passthrough:///"+l.options.Target, l.options.From.DialOptions(&l.handshakes)...)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return cc, nil
}

// Establish requests every leg for the first time and subscribes to it.
func (l *Load) Establish(ctx context.Context) {
	l.each(ctx, "established", l.options.Callers, (*leg).refresh)
}

// Request requests every leg and subscribes to none.
func (l *Load) Request(ctx context.Context) {
	l.each(ctx, "requested", l.options.Callers, (*leg).request)
}

// Subscribe subscribes to every leg, all at the same time, and returns when each has
// its initial state.
func (l *Load) Subscribe(ctx context.Context) {
	l.each(ctx, "subscribed to", len(l.legs), (*leg).subscribe)
}

// Refresh refreshes every leg, and returns how long each Request took, the dial
// before it included.
func (l *Load) Refresh(ctx context.Context) []time.Duration {
	l.mu.Lock()
	l.latencies = nil
	l.mu.Unlock()
	l.each(ctx, "refreshed", l.options.Callers, (*leg).refresh)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latencies
}

// Remove closes every leg, for a load that is to leave nothing behind.
func (l *Load) Remove(ctx context.Context) { l.each(ctx, "closed", l.options.Callers, (*leg).remove) }

// Close ends what is open, on this side alone.
func (l *Load) Close() {
	for _, leg := range l.legs {
		leg.disconnect()
	}
	if l.shared != nil {
		_ = l.shared.Close()
	}
}

// each does something with every leg, so many at the same time.
func (l *Load) each(ctx context.Context, what string, atOnce int, do func(*leg, context.Context) error) {
	var callers sync.WaitGroup
	var next, done atomic.Int64
	for range atOnce {
		callers.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(l.legs) || ctx.Err() != nil {
					return
				}
				if err := do(l.legs[n], ctx); err != nil {
					l.fault(err)
				}
				if l.options.Progress != nil {
					l.options.Progress(what, int(done.Add(1)), len(l.legs))
				}
			}
		})
	}
	callers.Wait()
}

func (l *Load) fault(err error) {
	l.errors.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.firstErr == nil {
		l.firstErr = err
	}
}

// Err is the first of the errors.
func (l *Load) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.firstErr
}

func (l *Load) took(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latencies = append(l.latencies, d)
}

// Counts returns what has come back so far.
func (l *Load) Counts() Counts {
	counts := l.events.counts()
	counts.Errors, counts.Handshakes = int(l.errors.Load()), int(l.handshakes.Load())
	return counts
}

// client is the proxy as seen over that connection.
func client(cc *grpc.ClientConn) networkservice.NetworkServiceClient {
	return networkservice.NewNetworkServiceClient(cc)
}

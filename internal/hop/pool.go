// Package hop owns the outgoing gRPC connections of the process.
//
// A hop is the connection to one upstream address, shared by every leg that
// goes there and kept over their refreshes: a refresh dials nothing. The
// registries are reached through hops, too.
//
// What is promised:
//
//   - One connection per target, however many ask at once. Nobody waits for
//     somebody else's target: nothing is dialled, called or closed under a lock.
//   - A handle that has been taken stays usable until it is released, and a
//     second Release of the same handle does nothing. A hop without handles is
//     kept for a while, then closed; once closed it is never handed out again.
//   - While somebody holds a handle, a lost connection is dialled again at once,
//     then with a capped backoff, and a silent one is probed (see probe.go).
//   - A call waits for a connection no longer than one attempt at it may take.
//     How long the far side takes to answer is the caller's business alone.
//   - A Request that is not answered for a while has the hop checked, and the
//     connection replaced if the peer is gone (suspect.go).
//   - A connection is renewed for the certificates of either side, make-before-break.
//     Calls on the old one end first, and so do watches of a registry (identity.go,
//     rotated.go). Monitor streams are resumed by who reads them.
//   - A call that failed without an answer from the far side returns a
//     *TransportError; any other error is the far side's own word.
//
// Everything ends with the context of the pool, which waits for its goroutines
// through the wait group that it was given.
package hop

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

const (
	// DefaultDialTimeout bounds one attempt at a connection. The SDK gives a
	// caller's try 15 s, so three attempts fit into it.
	DefaultDialTimeout = 4 * time.Second
	// DefaultProbeInterval is a quarter of the shortest idle limit seen on
	// balancers (AWS Classic ELB: 60 s), so that three probes may be lost.
	DefaultProbeInterval = 15 * time.Second
	// DefaultMaxBackoff keeps the pause between attempts well under the
	// default grace of 30 s: an outage that ends inside it is resumed inside it.
	DefaultMaxBackoff = 5 * time.Second

	// linger is how long a hop outlives its last handle: a client that heals or
	// reselects comes back within seconds and then finds a warm connection.
	linger = 30 * time.Second
	// baseBackoff is the pause after the first failed attempt: short, because a
	// balancer that moves or a pod that restarts is back in well under a second.
	baseBackoff = 200 * time.Millisecond
	// jitter is the part of a pause that is left to chance, so that hops that were
	// lost together do not come back together.
	jitter = 0.2
	// pingTimeout is how long the answer to an HTTP/2 ping may take. With the
	// default probe interval a black hole is noticed 25 s after the last byte.
	pingTimeout = 10 * time.Second
	// buffer is the size of the read and the write buffer of a connection, as on the
	// server's side. gRPC's 32 KiB are for bulk: a Request has a few KiB, and with a
	// hop for each nsmgr and remote of a large domain they alone would take a tenth
	// of the 100 MiB that the shipped manifest allows.
	buffer = 4 << 10
	// drainTimeout is how long calls in flight hold up the end of the process:
	// well under the 10 s that it may take in all.
	drainTimeout = 3 * time.Second
)

// Options are the settings of a pool. Zero durations take the defaults, but for
// ProbeInterval, where 0 turns probes and pings off.
type Options struct {
	// DialOptions carry credentials, interceptors and default call options.
	DialOptions []grpc.DialOption
	// Dialer makes the connections; nil for one of our own. A dialer among the
	// DialOptions takes its place, and its attempts have gRPC's bound, which grows
	// with the backoff.
	Dialer Dialer
	// LookupHost returns the addresses of a name; nil for the system's.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	// DialTimeout bounds one attempt at an address: TCP, TLS and HTTP/2 preface
	// together.
	DialTimeout time.Duration
	// ProbeInterval is the silence after which a hop in use is probed.
	ProbeInterval time.Duration
	// MaxBackoff caps the pause between two attempts at an address, and between two
	// at looking up a name.
	MaxBackoff time.Duration
	// Identity is what connections are made with, if their life depends on it.
	Identity Identity
	// TokenLifetime is the longest lifetime of a token that goes over a
	// connection.
	TokenLifetime time.Duration
}

// Pool hands out hops.
type Pool struct {
	// Set once at construction.
	ctx  context.Context
	wg   *sync.WaitGroup
	opts Options
	// sender is a name for this process that nobody else has.
	sender string
	// calls are the unary calls in flight.
	calls calls

	// mu guards all following fields and the counts inside the hops.
	mu   sync.Mutex
	hops map[string]*hop
	done bool
}

// NewPool makes a pool that lives as long as ctx and counts its goroutines in wg.
func NewPool(ctx context.Context, wg *sync.WaitGroup, opts Options) *Pool {
	if opts.DialTimeout <= 0 {
		opts.DialTimeout = DefaultDialTimeout
	}
	if opts.MaxBackoff <= 0 {
		opts.MaxBackoff = DefaultMaxBackoff
	}
	if opts.Dialer == nil {
		opts.Dialer = dialAddress
	}
	if opts.LookupHost == nil {
		opts.LookupHost = net.DefaultResolver.LookupHost
	}
	p := &Pool{ctx: ctx, wg: wg, opts: opts, sender: newSender(), hops: make(map[string]*hop)}
	wg.Go(func() {
		<-ctx.Done()
		p.drain()
		p.closeAll()
	})
	if opts.Identity != nil {
		wg.Go(p.follow)
	}
	return p
}

// Take returns a handle on the hop to u. It does not wait for the connection.
// The error is one of the target's form, or says that the pool has ended.
func (p *Pool) Take(u *url.URL) (*Handle, error) {
	target, err := Target(u)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return nil, fmt.Errorf("hop: %s: %w", target, context.Canceled)
	}
	h, ok := p.hops[target]
	if !ok {
		if h, err = p.open(target); err != nil {
			return nil, err
		}
		p.hops[target] = h
	}
	return p.retain(h), nil
}

// Len returns how many hops there are, those that linger included.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.hops)
}

// retain counts one more handle on h. The caller holds mu.
func (p *Pool) retain(h *hop) *Handle {
	h.users.Add(1)
	if h.closing != nil {
		h.closing.Stop()
		h.closing = nil
	}
	h.conn.Load().wake()
	return &Handle{pool: p, hop: h}
}

// release gives one handle back. The last one starts the linger.
func (p *Pool) release(h *hop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.users.Add(-1) > 0 || p.done {
		return
	}
	h.lingers++
	nth := h.lingers
	h.closing = time.AfterFunc(linger, func() { p.expire(h, nth) })
}

// expire closes h unless somebody took it again in the meantime: this linger is
// then not the hop's last.
func (p *Pool) expire(h *hop, nth int) {
	p.mu.Lock()
	if h.users.Load() > 0 || h.lingers != nth || p.done {
		p.mu.Unlock()
		return
	}
	delete(p.hops, h.target)
	p.mu.Unlock()
	h.conn.Load().close()
}

// background runs f on a goroutine of the pool. Once the pool has ended it does
// not, and returns false.
func (p *Pool) background(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		p.wg.Go(func() {
			defer guard.Recover(p.ctx, "a goroutine of the hops")
			f()
		})
	}
	return !p.done
}

// drain gives Requests that are under way the time to be answered: a far side
// whose Request is cancelled may take it for a failure.
func (p *Pool) drain() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), drainTimeout)
	defer cancel()
	p.calls.wait(ctx)
}

func (p *Pool) closeAll() {
	p.mu.Lock()
	p.done = true
	hops := p.hops
	p.hops = nil
	for _, h := range hops {
		if h.closing != nil {
			h.closing.Stop()
		}
	}
	p.mu.Unlock()
	for _, h := range hops {
		h.conn.Load().close()
	}
}

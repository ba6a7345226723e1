package hop

import (
	"context"
	"fmt"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

// open makes the hop. The caller holds mu.
func (p *Pool) open(target string) (*hop, error) {
	h := &hop{
		target:      target,
		dialTimeout: p.opts.DialTimeout,
		log:         log.FromContext(p.ctx).WithField("hop", target),
	}
	c, err := p.dial(h)
	if err != nil {
		return nil, err
	}
	h.conn.Store(c)
	return h, nil
}

// dial makes a connection for h and starts its goroutines. It does not wait for
// it: that is the keeper's work.
func (p *Pool) dial(h *hop) (*conn, error) {
	c := &conn{pool: p, hop: h, wakeup: make(chan struct{}, 1), examining: make(chan struct{}, 1)}
	cc, err := grpc.NewClient(h.target, p.dialOptions(c)...)
	if err != nil {
		return nil, fmt.Errorf("hop: %s: %w", h.target, err)
	}
	// They end with the connection, which may outlive the pool's context for as
	// long as it is drained.
	c.cc = cc
	c.ctx, c.stop = context.WithCancel(context.WithoutCancel(p.ctx))
	p.wg.Go(c.keep)
	if p.opts.ProbeInterval > 0 {
		p.wg.Go(func() { c.probe(c.ctx, p.opts.ProbeInterval) })
	}
	return c, nil
}

// replace puts a new connection in the place of one whose peer is gone. Calls on
// the old one fail at once, and may be made again on the new one.
func (p *Pool) replace(old *conn) {
	p.succeed(old)
	old.close()
}

func (p *Pool) dialOptions(c *conn) []grpc.DialOption {
	// gRPC's jitter goes both ways, and the cap is to hold with it.
	longest := time.Duration(float64(p.opts.MaxBackoff) / (1 + jitter))
	connect := grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay:  min(baseBackoff, longest),
			Multiplier: 1.6,
			Jitter:     jitter,
			MaxDelay:   longest,
		},
		MinConnectTimeout: p.opts.DialTimeout,
	}
	var opts []grpc.DialOption
	if !viaProxy(c.hop.target) {
		opts = append(opts, grpc.WithContextDialer(bounded(p.opts.Dialer, p.opts.DialTimeout)))
	}
	// Ours come last, so that the bounds hold whatever the others say.
	opts = append(opts, p.opts.DialOptions...)
	opts = append(opts,
		grpc.WithResolvers(&names{
			lookupHost: p.opts.LookupHost, maxBackoff: p.opts.MaxBackoff, log: c.hop.log,
			conn: func() *grpc.ClientConn { return c.cc },
		}),
		grpc.WithConnectParams(connect),
		grpc.WithStatsHandler(c),
		// The pool decides when a hop is no longer needed, not a timer in gRPC.
		grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(buffer),
		grpc.WithWriteBufferSize(buffer),
		grpc.WithSharedWriteBuffer(true),
		// What a far side says is bounded as what callers say: it is kept, and passed
		// on to them.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(guard.MaxMessage)),
		grpc.WithMaxHeaderListSize(guard.MaxHeaders),
	)
	if p.opts.ProbeInterval > 0 {
		opts = append(opts, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			// Not below the probe interval: the answer to a probe resets the
			// ping count of a stock server, which expels eager pingers.
			Time:    p.opts.ProbeInterval,
			Timeout: pingTimeout,
		}))
	}
	return opts
}

package hop

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
)

// probe keeps a hop in use from falling silent.
//
// Balancers close what carries no payload, and neither TCP keepalives nor
// HTTP/2 pings are payload to all of them. A health check is, both ways, and
// every stock server answers it for the empty service name to whoever has a
// certificate. What it answers does not matter: that it answers does. A probe
// without an answer changes nothing by itself; the HTTP/2 ping behind it ends
// the connection if the peer is gone.
func (c *conn) probe(ctx context.Context, interval time.Duration) {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		silence := time.Since(time.Unix(0, c.lastPayload.Load()))
		if silence < interval {
			timer.Reset(interval - silence)
			continue
		}
		if c.hop.users.Load() > 0 && c.cc.GetState() == connectivity.Ready {
			if err := c.check(ctx, interval); err != nil {
				c.hop.log.Debugf("probe: %v", err)
			}
		}
		timer.Reset(interval)
	}
}

// check asks the peer for its health. A peer that answers, whatever it answers,
// is alive.
func (c *conn) check(ctx context.Context, timeout time.Duration, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	call, answerer := &call{sent: new(atomic.Bool)}, new(peer.Peer)
	ctx = context.WithValue(ctx, callKey{}, call)
	opts = append(failFast(opts), grpc.Peer(answerer))
	_, err := grpc_health_v1.NewHealthClient(c.cc).Check(ctx, new(grpc_health_v1.HealthCheckRequest), opts...)
	// A hop that only streams go over learns here how long it may live.
	c.bound(answerer)
	if call.answered.Load() {
		return nil
	}
	return err
}

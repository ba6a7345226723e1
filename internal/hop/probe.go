package hop

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// probe keeps a hop in use from falling silent.
//
// Balancers close what carries no payload, and neither TCP keepalives nor
// HTTP/2 pings are payload to all of them. A health check is, both ways, and
// every stock server answers it for the empty service name to whoever has a
// certificate. What it answers does not matter: that it answers does. A probe
// without an answer changes nothing by itself; the HTTP/2 ping behind it ends
// the connection if the peer is gone.
func (h *hop) probe(ctx context.Context, interval time.Duration) {
	client := grpc_health_v1.NewHealthClient(h.cc)
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		silence := time.Since(time.Unix(0, h.lastPayload.Load()))
		if silence < interval {
			timer.Reset(interval - silence)
			continue
		}
		if h.users.Load() > 0 && h.cc.GetState() == connectivity.Ready {
			h.check(ctx, client, interval)
		}
		timer.Reset(interval)
	}
}

func (h *hop) check(ctx context.Context, client grpc_health_v1.HealthClient, interval time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(false))
	if err != nil {
		h.log.Debugf("probe: %v", err)
	}
}

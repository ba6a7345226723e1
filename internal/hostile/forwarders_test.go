//go:build linux

package hostile_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// forwarders are a neighbour as the SDK makes it: a connection for each leg, with
// its monitor stream, and another in its place at each refresh.
type forwarders struct {
	p         *process
	legs      []*forwarder
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	refreshed atomic.Int64
	slowest   atomic.Int64 // nanoseconds
	peak      atomic.Int64 // bytes

	mu     sync.Mutex
	failed []error
}

// workers is how many of a neighbour's calls are under way.
const workers = 4

type forwarder struct {
	number string
	conn   *grpc.ClientConn
	leg    *networkservice.Connection
}

// newForwarders establishes so many legs.
func newForwarders(t *testing.T, p *process, legs int) *forwarders {
	f := &forwarders{p: p}
	f.ctx, f.cancel = context.WithCancel(t.Context())
	for n := range legs {
		f.legs = append(f.legs, &forwarder{number: fmt.Sprintf("stock-%d", n)})
	}
	f.wg.Go(func() {
		f.onTicks(5*time.Millisecond, func(int) {
			usage, _ := p.Usage()
			f.peak.Store(max(f.peak.Load(), usage.Memory))
		})
	})
	t.Cleanup(func() { f.cancel(); f.wg.Wait() })
	f.refreshAll(t)
	return f
}

// onTicks calls do now and then until the end.
func (f *forwarders) onTicks(interval time.Duration, do func(n int)) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for n := 0; ; n++ {
		select {
		case <-f.ctx.Done():
			return
		case <-ticks.C:
			do(n)
		}
	}
}

// refreshAll makes a Request for each leg.
func (f *forwarders) refreshAll(t *testing.T) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := w; n < len(f.legs); n += workers {
				f.refresh(t, f.legs[n])
			}
		})
	}
	wg.Wait()
}

// goOn refreshes the legs in turn until the end.
func (f *forwarders) goOn(t *testing.T) {
	for w := range workers {
		f.wg.Go(func() {
			f.onTicks(tick, func(n int) { f.refresh(t, f.legs[(n*workers+w)%len(f.legs)]) })
		})
	}
}

// refresh makes the first or the next Request, over a new connection.
func (f *forwarders) refresh(t *testing.T, leg *forwarder) {
	began := time.Now()
	conn := f.p.dial(t, f.p.addr, f.p.tokens())
	request := goodRequest(leg.number)
	if leg.leg != nil {
		request = &networkservice.NetworkServiceRequest{Connection: leg.leg.Clone()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	answer, err := networkservice.NewNetworkServiceClient(conn).Request(ctx, request)
	if err == nil {
		_, err = networkservice.NewMonitorConnectionClient(conn).MonitorConnections(context.Background(), // it ends with conn
			&networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: answer.GetId()}}})
	}
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.failed = append(f.failed, err)
		_ = conn.Close()
		return
	}
	if leg.conn != nil {
		_ = leg.conn.Close()
	}
	leg.conn, leg.leg = conn, answer
	f.refreshed.Add(1)
	f.slowest.Store(max(f.slowest.Load(), int64(time.Since(began))))
}

func (f *forwarders) stop(t *testing.T) {
	f.cancel()
	f.wg.Wait()
	require.Empty(t, f.failed)
}

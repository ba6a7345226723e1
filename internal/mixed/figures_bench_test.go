package mixed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// These print figures of an outbound proxy, each in a process of its own, over
// real sockets and mutual TLS. Every experiment takes a while and is worth running
// once:
//
//	go test ./internal/mixed -run '^$' -bench . -benchtime 1x
const (
	// callers is how many calls a neighbour has under way at a time.
	callers = 8
	// targets is how many remote domains there are, half of which die.
	targets = 100
	// perTarget is how many connections go to each.
	perTarget = 4
	// latencyRounds is how often the connections to the living half are renewed.
	latencyRounds = 10
)

// crowd is many connections of one neighbour through one outbound proxy. They go
// to as many remotes as there are relays; one far side answers for all.
type crowd struct {
	testing.TB
	endpoint *domain
	cc       *grpc.ClientConn
	far      *lbtest.Far
	relays   []*lbtest.Relay
	sub      *subscriber
	conns    []*networkservice.Connection
}

func newCrowd(t testing.TB, kind string, connections, remotes int) *crowd {
	t.Helper()
	client, endpoint := newDomains(t)
	c := &crowd{TB: t, endpoint: endpoint, far: lbtest.NewFar(), conns: make([]*networkservice.Connection, connections)}
	outbound := newProxy(t, client, "outbound")
	outbound.start(t, kind)
	farAddr, _ := endpoint.serve(t, c.far.Register, grpc.MaxConcurrentStreams(uint32(2*connections)))
	c.cc = client.dial(t, outbound.addr)
	for remote := range remotes {
		relay, err := lbtest.Listen("127.0.0.1:0", farAddr)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, relay.Close()) })
		c.relays = append(c.relays, relay)
		client.registry.set(nameAt(remote), relay.Addr())
		find(t, c.cc, nameAt(remote))
	}
	c.subscribe(outbound.name)
	t.Cleanup(func() { c.sub.end() })
	c.each(c.all(), func(n int) error { return c.request(n, c.first(n)) })
	return c
}

func nameAt(remote int) string { return fmt.Sprintf("endpoint-%d@cluster%d", remote, remote+2) }

// subscribe joins as a forwarder that watches all that is its own.
func (c *crowd) subscribe(proxy string) {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := networkservice.NewMonitorConnectionClient(c.cc).MonitorConnections(ctx, &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Name: "forwarder"}},
	})
	require.NoError(c, err)
	c.sub = &subscriber{leave: cancel, done: make(chan struct{})}
	go c.sub.listen(stream, proxy)
}

func (c *crowd) first(n int) *networkservice.Connection {
	path := lbtest.NewPath(n)
	return &networkservice.Connection{
		Id: path.PathSegments[2].Id, NetworkService: "service@cluster2",
		NetworkServiceEndpointName: nameAt(n % len(c.relays)), Path: path,
	}
}

func (c *crowd) request(n int, conn *networkservice.Connection) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	answer, err := networkservice.NewNetworkServiceClient(c.cc).Request(ctx, &networkservice.NetworkServiceRequest{Connection: conn})
	if err == nil {
		c.conns[n] = answer
	}
	return err
}

func (c *crowd) refresh(n int) error { return c.request(n, c.conns[n]) }

func (c *crowd) all() []int {
	all := make([]int, len(c.conns))
	for n := range all {
		all[n] = n
	}
	return all
}

// to returns the connections to remotes from one to before another.
func (c *crowd) to(from, before int) []int {
	return slices.DeleteFunc(c.all(), func(n int) bool { remote := n % len(c.relays); return remote < from || remote >= before })
}

// each calls f for all the numbers and returns how long each call took.
func (c *crowd) each(numbers []int, f func(n int) error) []time.Duration {
	took := make([]time.Duration, len(numbers))
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := caller; i < len(numbers); i += callers {
				began := time.Now()
				if err := f(numbers[i]); err != nil {
					c.Errorf("connection %d: %v", numbers[i], err)
				}
				took[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	if c.Failed() {
		c.FailNow()
	}
	return took
}

func (c *crowd) watched() int {
	open, _ := c.far.Streams()
	return open
}

func (c *crowd) accepted() int64 { return c.relays[0].Stats().Accepted }

// BenchmarkUpstream counts what many refreshes to one remote cost in connections
// and handshakes.
func BenchmarkUpstream(b *testing.B) {
	for _, run := range []struct {
		kind                string
		connections, rounds int
	}{{ours, 1000, 10}, {stock, 100, 3}} {
		b.Run(fmt.Sprintf("%s/%dx%d", run.kind, run.connections, run.rounds), func(b *testing.B) {
			c := newCrowd(b, run.kind, run.connections, 1)
			b.ResetTimer()
			for b.Loop() {
				for range run.rounds {
					c.each(c.all(), c.refresh)
				}
			}
			b.ReportMetric(float64(c.accepted()), "tcp-connections")
			b.ReportMetric(float64(c.endpoint.handshakes.Load()), "handshakes")
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N*run.rounds*run.connections), "ms/refresh")
			if run.kind == ours {
				require.EqualValues(b, 1, c.accepted())
				require.EqualValues(b, 1, c.endpoint.handshakes.Load())
			}
		})
	}
}

// BenchmarkDeadTargets tells how long refreshes to living remotes take, alone,
// with as many others that live, and with as many that are black holes.
func BenchmarkDeadTargets(b *testing.B) {
	c := newCrowd(b, ours, targets*perTarget, targets)
	living, others := c.to(0, targets/2), c.to(targets/2, targets)
	for b.Loop() {
		c.report(b, "alone", living)
		c.beside(others, true, func() { c.report(b, "all-alive", living) })
		for _, relay := range c.relays[targets/2:] {
			relay.SetBlackhole(true)
		}
		c.beside(others, false, func() { c.report(b, "half-dead", living) })
	}
	b.ReportMetric(0, "ns/op")
}

// beside refreshes the others while it plays.
func (c *crowd) beside(others []int, alive bool, play func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, n := range others {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := c.refresh(n); err != nil && alive {
					c.Errorf("connection %d: %v", n, err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Second):
				}
			}
		})
	}
	play()
	cancel()
	wg.Wait()
}

func (c *crowd) report(b *testing.B, what string, numbers []int) {
	var took []time.Duration
	for range latencyRounds {
		took = append(took, c.each(numbers, c.refresh)...)
	}
	slices.Sort(took)
	b.ReportMetric(ms(took[len(took)/2]), what+"-p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), what+"-p99-ms")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkResume tells how long after one cut all connections are watched again, and
// what their subscriber sees of it. Stock tells each as DOWN and watches none.
func BenchmarkResume(b *testing.B) {
	for _, run := range []struct {
		kind        string
		connections int
	}{{ours, 1000}, {stock, 1000}, {ours, 2000}} {
		b.Run(fmt.Sprintf("%s/%d", run.kind, run.connections), func(b *testing.B) {
			c := newCrowd(b, run.kind, run.connections, 1)
			require.Eventually(b, func() bool { return c.watched() == run.connections }, patience, tick)
			require.Eventually(b, func() bool { return c.sub.count() > run.connections }, patience, tick)
			if run.kind == stock {
				c.cutStock(b)
				return
			}
			dialled, cuts := c.accepted(), int64(0)
			c.sub.take()
			for b.Loop() {
				// The loss of a stream that has lasted for less is not spread.
				require.Never(b, func() bool { return c.sub.count() > 0 }, 2*time.Second, 10*tick)
				c.cut(b)
				cuts++
			}
			require.Equal(b, run.connections, c.watched())
			require.EqualValues(b, 1, dialled)
			require.Equal(b, dialled+cuts, c.accepted(), "one dial for each cut")
			require.Zero(b, c.sub.count(), "no event")
			b.ReportMetric(0, "DOWNs")
			b.ReportMetric(float64(c.accepted()), "tcp-connections")
		})
	}
}

// resumed is how long a cut of one hop may be felt.
const resumed = 3 * time.Second

// cut cuts all, and waits until all are watched again.
func (c *crowd) cut(b *testing.B) {
	b.Helper()
	began := time.Now()
	c.relays[0].CutAll()
	require.Eventually(b, func() bool { return len(c.far.OpenedAfter(began)) == len(c.conns) }, patience, 10*tick)
	opened := c.far.OpenedAfter(began)
	worst := opened[len(opened)-1].Sub(began)
	b.ReportMetric(ms(opened[len(opened)/2].Sub(began)), "median-ms")
	b.ReportMetric(ms(worst), "worst-ms")
	require.Less(b, worst, resumed)
}

// cutStock cuts all and reports what becomes of it in ten seconds.
func (c *crowd) cutStock(b *testing.B) {
	b.Helper()
	c.sub.take()
	began := time.Now()
	c.relays[0].CutAll()
	time.Sleep(10 * time.Second)
	downs := 0
	for _, event := range c.sub.take() {
		if event == down {
			downs++
		}
	}
	b.ReportMetric(float64(downs), "DOWNs")
	b.ReportMetric(float64(len(c.far.OpenedAfter(began))), "watched-again")
}

// deaths is how many are compared.
const deaths = 200

// BenchmarkDeath tells how long after the endpoint's death the subscriber learns of
// it: the two proxies one after the other, over and over, so that whatever else the
// machine does falls on both.
func BenchmarkDeath(b *testing.B) {
	mine, theirs := newCrowd(b, ours, 1, 1), newCrowd(b, stock, 1, 1)
	for b.Loop() {
		var after, stockAfter, later []time.Duration
		for range deaths {
			after = append(after, mine.death(b))
			stockAfter = append(stockAfter, theirs.death(b))
			later = append(later, after[len(after)-1]-stockAfter[len(stockAfter)-1])
		}
		for _, all := range [][]time.Duration{after, stockAfter, later} {
			slices.Sort(all)
		}
		b.ReportMetric(ms(after[deaths/2]), "ours-median-ms")
		b.ReportMetric(ms(stockAfter[deaths/2]), "stock-median-ms")
		b.ReportMetric(ms(after[deaths*99/100]), "ours-p99-ms")
		b.ReportMetric(ms(stockAfter[deaths*99/100]), "stock-p99-ms")
		b.ReportMetric(ms(later[deaths/2]), "median-difference-ms")
		require.Less(b, later[deaths/2], 50*time.Millisecond)
	}
	b.ReportMetric(0, "ns/op")
}

// death is one DOWN, and the connection's return after it.
func (c *crowd) death(b *testing.B) time.Duration {
	b.Helper()
	require.NoError(b, c.refresh(0))
	require.Eventually(b, func() bool { return c.watched() == 1 && slices.Contains(c.sub.peek(), up) }, patience, tick)
	time.Sleep(10 * tick) // stock opens another stream for each Request
	c.sub.take()
	began := time.Now()
	c.far.Die(c.conns[0].GetPath().GetPathSegments()[outboundIndex].GetId())
	for c.sub.count() == 0 && time.Since(began) < patience {
		time.Sleep(tick / 50)
	}
	took := time.Since(began)
	require.Equal(b, []string{down}, c.sub.take())
	return took
}

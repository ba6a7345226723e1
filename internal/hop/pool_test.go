package hop_test

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const farAddr = "10.0.0.1:5004"

var farURL = &url.URL{Scheme: "tcp", Host: farAddr}

// countingHealth counts the probes that arrive.
type countingHealth struct {
	*health.Server
	mu     sync.Mutex
	checks int
}

func (c *countingHealth) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	c.mu.Lock()
	c.checks++
	c.mu.Unlock()
	return c.Server.Check(ctx, r)
}

func (c *countingHealth) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checks
}

func inBubble(t *testing.T, opts hop.Options, f func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, probes *countingHealth)) {
	t.Helper()
	wire := lbtest.NewWire()
	inBubbleOn(t, wire, opts, func(t *testing.T, pool *hop.Pool, probes *countingHealth) { f(t, pool, wire, probes) })
}

func inBubbleOn(t *testing.T, wire *lbtest.Wire, opts hop.Options, f func(t *testing.T, pool *hop.Pool, probes *countingHealth)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		probes := &countingHealth{Server: health.NewServer()}
		s := grpc.NewServer() // stock settings: it expels eager pingers
		grpc_health_v1.RegisterHealthServer(s, probes)
		listener := wire.Listen(farAddr)
		served := make(chan error, 1)
		go func() { served <- s.Serve(listener) }()
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		opts.Dialer = wire.Dial
		opts.DialOptions = append(opts.DialOptions, grpc.WithTransportCredentials(insecure.NewCredentials()))
		f(t, hop.NewPool(ctx, &wg, opts), probes)
		cancel()
		wg.Wait()
		s.Stop()
		require.NoError(t, <-served)
	})
}

func take(t *testing.T, pool *hop.Pool) *hop.Handle {
	t.Helper()
	h, err := pool.Take(farURL)
	require.NoError(t, err)
	return h
}

func check(h *hop.Handle, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := grpc_health_v1.NewHealthClient(h).Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	return err
}

func TestTake_OneConnectionHoweverManyAsk(t *testing.T) {
	inBubble(t, hop.Options{}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, _ *countingHealth) {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { require.NoError(t, check(take(t, pool), time.Second)) })
		}
		wg.Wait()
		require.Equal(t, 1, wire.Dials(farAddr))
	})
}

func TestRelease_CountsOnceAndLingers(t *testing.T) {
	inBubble(t, hop.Options{}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, _ *countingHealth) {
		first, second := take(t, pool), take(t, pool)
		require.True(t, first.Same(second))
		require.NoError(t, check(first, time.Second))
		first.Release()
		first.Release()
		require.Equal(t, 1, second.Users())
		time.Sleep(time.Hour)
		require.NoError(t, check(second, time.Second), "a double release takes nobody's hold")

		second.Release()
		time.Sleep(20 * time.Second)
		third := take(t, pool)
		require.True(t, third.Same(second), "found warm")
		third.Release()
		time.Sleep(time.Minute)
		require.Zero(t, wire.Open(farAddr), "closed after a while")
		fourth := take(t, pool)
		require.False(t, fourth.Same(third), "never revived")
		require.NoError(t, check(fourth, time.Second))
		require.Equal(t, 2, wire.Dials(farAddr))
	})
}

func TestProbe_OnlyWhileUsedAndSilent(t *testing.T) {
	inBubble(t, hop.Options{ProbeInterval: 15 * time.Second}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, probes *countingHealth) {
		h := take(t, pool)
		for range 60 {
			time.Sleep(10 * time.Second)
			require.NoError(t, check(h, time.Second))
		}
		require.Equal(t, 60, probes.count(), "a busy hop needs no probe")
		time.Sleep(10 * time.Minute)
		probed := probes.count() - 60
		require.InDelta(t, 40, probed, 1, "every 15 s of silence")
		h.Release()
		time.Sleep(25 * time.Second)
		require.LessOrEqual(t, probes.count()-60-probed, 1, "nobody uses it")
		require.Equal(t, 1, wire.Dials(farAddr), "and a stock server did not expel us")
	})
}

func TestProbe_Off(t *testing.T) {
	inBubble(t, hop.Options{}, func(t *testing.T, pool *hop.Pool, _ *lbtest.Wire, probes *countingHealth) {
		h := take(t, pool)
		time.Sleep(time.Hour)
		require.Zero(t, probes.count())
		h.Release()
	})
}

func TestCut_IsDialledAgainAtOnceWithoutACall(t *testing.T) {
	inBubble(t, hop.Options{}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, _ *countingHealth) {
		h := take(t, pool)
		require.NoError(t, check(h, time.Second))
		for n := 2; n < 100; n++ {
			require.Equal(t, 1, wire.Cut(farAddr))
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
			require.True(t, h.Connected(), "the hundredth like the first")
			require.Equal(t, n, wire.Dials(farAddr))
		}
	})
}

func TestOutage_BackoffIsCapped(t *testing.T) {
	inBubble(t, hop.Options{MaxBackoff: 5 * time.Second}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, _ *countingHealth) {
		h := take(t, pool)
		require.NoError(t, check(h, time.Second))
		wire.Refuse(farAddr, true)
		wire.Cut(farAddr)
		time.Sleep(10 * time.Minute)
		dials := wire.Dials(farAddr)
		require.Greater(t, dials, 80, "at least every 6 s")
		require.Less(t, dials, 300, "no storm either")
		wire.Refuse(farAddr, false)
		time.Sleep(6 * time.Second)
		require.True(t, h.Connected())
	})
}

func TestCall_WaitsNoLongerThanAnAttempt(t *testing.T) {
	inBubble(t, hop.Options{DialTimeout: 4 * time.Second}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, _ *countingHealth) {
		wire.Blackhole(farAddr, true)
		h := take(t, pool)
		began := time.Now()
		err := check(h, time.Minute)
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		require.LessOrEqual(t, time.Since(began), 4*time.Second)
		var lost *hop.TransportError
		require.ErrorAs(t, err, &lost)
		require.Contains(t, lost.Error(), farAddr)

		began = time.Now()
		require.Error(t, check(h, 3*time.Second))
		require.LessOrEqual(t, time.Since(began), 2*time.Second, "and leaves the caller a second")
	})
}

func TestCall_TellsTheFarSidesAnswerFromAFailureOnTheWay(t *testing.T) {
	inBubble(t, hop.Options{}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, _ *countingHealth) {
		h := take(t, pool)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var lost *hop.TransportError
		_, err := grpc_health_v1.NewHealthClient(h).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "nobody"})
		require.Equal(t, codes.NotFound, status.Code(err))
		require.NotErrorAs(t, err, &lost)

		wire.Refuse(farAddr, true)
		wire.Cut(farAddr)
		require.ErrorAs(t, check(h, 10*time.Second), &lost)
	})
}

func TestDeadTarget_DelaysNobodyElse(t *testing.T) {
	inBubble(t, hop.Options{}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, _ *countingHealth) {
		wire.Blackhole("10.0.0.2:5004", true)
		for range 50 {
			dead, err := pool.Take(&url.URL{Scheme: "tcp", Host: "10.0.0.2:5004"})
			require.NoError(t, err)
			go func() { _ = check(dead, 10*time.Second) }()
		}
		began := time.Now()
		require.NoError(t, check(take(t, pool), time.Second))
		require.Zero(t, time.Since(began))
		time.Sleep(20 * time.Second)
	})
}

func TestPool_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		pool := hop.NewPool(ctx, &wg, hop.Options{DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
		h := take(t, pool)
		cancel()
		wg.Wait()
		_, err := pool.Take(farURL)
		require.ErrorIs(t, err, context.Canceled)
		require.Error(t, check(h, time.Second))
		h.Release()
	})
}

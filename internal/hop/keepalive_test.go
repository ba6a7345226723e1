package hop_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// watch opens a stream on which nothing comes after the first message, as a monitor
// stream is. It returns how it ended.
func watch(ctx context.Context, t *testing.T, cc grpc.ClientConnInterface) (ended <-chan error) {
	t.Helper()
	stream, err := grpc_health_v1.NewHealthClient(cc).Watch(ctx, new(grpc_health_v1.HealthCheckRequest))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	end := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		end <- err
	}()
	return end
}

// Four hours of pings and probes, with a stream and without, on a server with stock
// settings, which expels a client after the third ping without payload between them.
func TestPings_AStockServerDoesNotExpelThem(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 10 * time.Second, hop.DefaultProbeInterval, 5 * time.Minute} {
		t.Run(interval.String(), func(t *testing.T) {
			inBubble(t, hop.Options{ProbeInterval: interval}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, probes *countingHealth) {
				h := take(t, pool)
				defer h.Release()
				require.NoError(t, check(h, time.Second))
				time.Sleep(2 * time.Hour)
				ctx, cancel := context.WithCancel(t.Context())
				ended := watch(ctx, t, h)
				time.Sleep(2 * time.Hour)
				require.Empty(t, ended)
				require.Equal(t, 1, wire.Dials(farAddr), "no GOAWAY")
				require.InEpsilon(t, 4*time.Hour/interval, probes.count(), 0.1)
				cancel()
				<-ended
			})
		})
	}
}

// The same once for real, and for as long as it takes to be sure: an eager client
// without probes is expelled meanwhile.
func TestPings_AStockServerDoesNotExpelThemForReal(t *testing.T) {
	const name = "long"
	if !slices.Contains(strings.Split(os.Getenv("NSMGR_PROXY_TEST"), ","), name) {
		t.Skipf("takes 150 s: set NSMGR_PROXY_TEST=%s", name)
	}
	const eager = 10 * time.Second // gRPC pings no sooner
	listener := serveReal(t, "tcp4", "127.0.0.1:0")
	cc, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: eager, Timeout: eager}))
	require.NoError(t, err)
	defer func() { require.NoError(t, cc.Close()) }()
	expelled := watch(t.Context(), t, cc)
	withDialer(t, hop.Options{ProbeInterval: eager}, nil, func(t *testing.T, pool *hop.Pool) {
		h, err := pool.Take(&url.URL{Scheme: "tcp", Host: listener.Addr().String()})
		require.NoError(t, err)
		defer h.Release()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := watch(ctx, t, h)
		select {
		case err := <-ended:
			require.Fail(t, "expelled", "%v", err)
		case <-time.After(150 * time.Second):
		}
		cancel()
		<-ended
	})
	require.ErrorContains(t, <-expelled, "too_many_pings", "the check bites")
}

// Off is off: as with a stock proxy, a peer that has gone without a word is never
// missed.
func TestProbeOff_NothingAsksForThePeer(t *testing.T) {
	inBubble(t, hop.Options{}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, probes *countingHealth) {
		h := take(t, pool)
		ctx, cancel := context.WithCancel(t.Context())
		ended := watch(ctx, t, h)
		require.NoError(t, check(h, time.Second))
		wire.Blackhole(farAddr, true)
		began := time.Now()
		require.Error(t, check(h, 10*time.Minute), "nor while a call is not answered")
		require.Equal(t, 10*time.Minute, time.Since(began))
		time.Sleep(time.Hour) // the server itself pings after two
		require.True(t, h.Connected())
		require.Empty(t, ended)
		require.Equal(t, 1, wire.Dials(farAddr))
		require.Equal(t, 1, probes.count())
		cancel()
		<-ended
		h.Release()
	})
}

// bufferSizes notes the sizes of reads and writes.
type bufferSizes struct {
	net.Conn
	mu           sync.Mutex
	reads, wrote int
}

func (b *bufferSizes) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.reads == 0 {
		b.reads = len(p)
	}
	b.mu.Unlock()
	return b.Conn.Read(p)
}

func (b *bufferSizes) Write(p []byte) (int, error) {
	b.mu.Lock()
	b.wrote = max(b.wrote, len(p))
	b.mu.Unlock()
	return b.Conn.Write(p)
}

func TestBuffers_AreSmall(t *testing.T) {
	var sizes *bufferSizes
	wire := lbtest.NewWire()
	opts := hop.Options{DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := wire.Dial(ctx, addr)
		sizes = &bufferSizes{Conn: conn}
		return sizes, err
	})}}
	inBubbleOn(t, wire, opts, func(t *testing.T, pool *hop.Pool, _ *countingHealth) {
		h := take(t, pool)
		defer h.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := grpc_health_v1.NewHealthClient(h).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", 60_000)})
		require.Error(t, err)
		sizes.mu.Lock()
		defer sizes.mu.Unlock()
		require.Equal(t, 4<<10, sizes.reads)
		require.LessOrEqual(t, sizes.wrote, 4<<10)
	})
}

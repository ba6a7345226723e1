package hop_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"sync"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
)

func TestRenewalThatFailsKeepsTheGoodConnection(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		h := take(t, i.pool)
		defer h.Release()
		require.NoError(t, check(h, time.Second))
		stream, err := grpc_health_v1.NewHealthClient(h).Watch(t.Context(), new(grpc_health_v1.HealthCheckRequest))
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		ended := make(chan time.Time, 1)
		go func() { _, _ = stream.Recv(); ended <- time.Now() }()
		began := time.Now()
		i.wire.Refuse(farAddr, true) // no new ones for a minute; those that are there go on
		require.NoError(t, i.own.Rotate())
		time.Sleep(time.Minute)
		open := i.wire.Open(farAddr)
		i.wire.Refuse(farAddr, false)
		time.Sleep(10 * time.Second)
		t.Logf("stream ended after %s", (<-ended).Sub(began))
		require.Equal(t, 1, open, "the good one is kept until there is another")
	})
}

func TestEndOfLifeInTheLinger(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		h := take(t, i.pool)
		require.NoError(t, check(h, time.Second))
		time.Sleep(50*time.Minute - 10*time.Second)
		require.NoError(t, i.far.Rotate())
		h.Release()
		time.Sleep(20 * time.Second) // the timer fires here
		h = take(t, i.pool)
		defer h.Release()
		for range 9 {
			_ = check(h, time.Second)
			time.Sleep(time.Minute)
		}
		t.Logf("dials %d, shortest token %s", i.wire.Dials(farAddr), i.strict.lifetime)
		require.Greater(t, i.wire.Dials(farAddr), 1, "renewed")
	})
}

// rotating rotates in the moment between the choice of the certificate and the
// end of the handshake.
type rotating struct {
	credentials.TransportCredentials
	once   *atomic.Bool
	rotate func() error
}

func (r *rotating) ClientHandshake(ctx context.Context, a string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := r.TransportCredentials.ClientHandshake(ctx, a, c)
	if err == nil && r.once.CompareAndSwap(false, true) {
		_ = r.rotate()
	}
	return conn, info, err
}
func (r *rotating) Clone() credentials.TransportCredentials {
	return &rotating{r.TransportCredentials.Clone(), r.once, r.rotate}
}

func TestRotationDuringTheHandshake(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		defer wg.Wait()
		defer cancel()
		pool := hop.NewPool(ctx, &wg, hop.Options{
			Identity: i.own, TokenLifetime: 10 * time.Minute,
			DialOptions: []grpc.DialOption{
				grpc.WithContextDialer(i.wire.Dial),
				grpc.WithTransportCredentials(&rotating{credentials.NewTLS(tlsconfig.MTLSClientConfig(i.own, i.own, tlsconfig.AuthorizeAny())), new(atomic.Bool), i.own.Rotate}),
				grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(spiffejwt.TokenGeneratorFunc(i.own, 10*time.Minute)))),
			},
		})
		h := take(t, pool)
		defer h.Release()
		synctest.Wait()
		var failed int
		for range 40 {
			if check(h, time.Second) != nil {
				failed++
			}
			time.Sleep(time.Minute)
		}
		require.Zero(t, failed, "of 40 in as many minutes")
	})
}

// What ends a connection's life is not its end: while no other can be made, calls go
// over the old one.
func TestIdentity_EndOfACertificateWhileNobodyTakesNewConnections(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		h := take(t, i.pool)
		defer h.Release()
		require.NoError(t, check(h, time.Second))
		i.wire.Refuse(farAddr, true)
		for range 55 {
			time.Sleep(time.Minute)
			require.NoError(t, check(h, time.Second))
		}
		require.Equal(t, 1, i.wire.Open(farAddr))
		i.wire.Refuse(farAddr, false)
		time.Sleep(30 * time.Second)
		require.NoError(t, check(h, time.Second))
		time.Sleep(30 * time.Second)
		require.Equal(t, 1, i.wire.Open(farAddr), "the new one")
	})
}

// The local registry is only ever searched, by streams; the probe learns who it is.
func TestIdentity_HopThatOnlyStreamsGoOverIsRenewedToo(t *testing.T) {
	withProbes(t, hop.DefaultProbeInterval, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		_, stop := findWatch(t, i.pool.Client(farURL))
		defer stop()
		time.Sleep(55 * time.Minute)
		require.Greater(t, i.wire.Dials(farAddr), 1, "the far side's certificate comes to its end")
	})
}

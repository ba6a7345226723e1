package hop_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v4"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// strict is a far side that refuses, as the SDK's default policies do, a token
// that is not signed by the certificate of the connection that carries it.
type strict struct {
	mu       sync.Mutex
	refused  int
	lifetime time.Duration // the shortest left of a token that came
}

func (s *strict) check(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	err := s.verify(ctx)
	if err != nil {
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	return handle(ctx, request)
}

func (s *strict) verify(ctx context.Context) error {
	raw, expires, err := token.FromContext(ctx)
	if err != nil {
		return err
	}
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return errors.New("no certificate")
	}
	s.mu.Lock()
	s.lifetime = min(s.lifetime, time.Until(expires))
	s.mu.Unlock()
	_, err = jwt.Parse(raw, func(*jwt.Token) (any, error) { return info.State.PeerCertificates[0].PublicKey, nil })
	return err
}

// identities is a pool with a certificate of its own and a strict far side with
// another.
type identities struct {
	own, far *identitytest.Source
	pool     *hop.Pool
	wire     *lbtest.Wire
	strict   *strict
}

func withIdentities(t *testing.T, ttl, tokens time.Duration, f func(t *testing.T, i *identities)) {
	withProbes(t, 0, ttl, tokens, f)
}

func withProbes(t *testing.T, probe, ttl, tokens time.Duration, f func(t *testing.T, i *identities)) {
	synctest.Test(t, func(t *testing.T) {
		ours, err := identitytest.NewCA("nsm.cluster1")
		require.NoError(t, err)
		theirs, err := identitytest.NewCA("nsm.cluster2")
		require.NoError(t, err)
		i := &identities{wire: lbtest.NewWire(), strict: &strict{lifetime: time.Hour}}
		i.own, err = identitytest.NewSource(ours, "proxy", ttl, theirs)
		require.NoError(t, err)
		i.far, err = identitytest.NewSource(theirs, "proxy", ttl, ours)
		require.NoError(t, err)

		server := grpc.NewServer(
			grpc.Creds(credentials.NewTLS(tlsconfig.MTLSServerConfig(i.far, i.far, tlsconfig.AuthorizeAny()))),
			grpc.UnaryInterceptor(i.strict.check))
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		listener := i.wire.Listen(farAddr)
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()

		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		i.pool = hop.NewPool(ctx, &wg, hop.Options{
			Identity: i.own, TokenLifetime: tokens, ProbeInterval: probe,
			DialOptions: []grpc.DialOption{
				grpc.WithContextDialer(i.wire.Dial),
				grpc.WithTransportCredentials(credentials.NewTLS(tlsconfig.MTLSClientConfig(i.own, i.own, tlsconfig.AuthorizeAny()))),
				grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(spiffejwt.TokenGeneratorFunc(i.own, tokens)))),
			},
		})
		defer func() {
			cancel()
			wg.Wait()
			server.Stop()
			require.NoError(t, <-served)
		}()
		f(t, i)
	})
}

func TestIdentity_RotationsRefuseNoCall(t *testing.T) {
	// As SPIRE does, certificates are renewed at half of their life.
	withIdentities(t, 2*time.Minute, 10*time.Minute, func(t *testing.T, i *identities) {
		h := take(t, i.pool)
		for n := range 300 { // an hour, 60 rotations of either side
			require.NoError(t, check(h, time.Second))
			time.Sleep(12 * time.Second)
			if n%5 == 2 {
				require.NoError(t, i.own.Rotate())
				require.NoError(t, check(h, time.Second), "at once after a rotation")
			}
			if n%5 == 4 {
				require.NoError(t, i.far.Rotate())
			}
		}
		require.Zero(t, i.strict.refused)
		require.Greater(t, i.strict.lifetime, 25*time.Second, "tokens do not shrink to nothing")
		require.Less(t, i.wire.Dials(farAddr), 350, "no storm of handshakes")
		time.Sleep(20 * time.Second)
		require.Equal(t, 1, i.wire.Open(farAddr), "the old connections are gone")
		h.Release()
	})
}

func TestIdentity_OldConnectionGoesWhenItsLastCallHasEnded(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		h := take(t, i.pool)
		require.NoError(t, check(h, time.Second))
		stream, err := grpc_health_v1.NewHealthClient(h).Watch(t.Context(), new(grpc_health_v1.HealthCheckRequest))
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		require.NoError(t, i.own.Rotate())
		synctest.Wait()
		require.Equal(t, 2, i.wire.Dials(farAddr), "the new one is made before the old one goes")
		_, err = stream.Recv()
		require.Error(t, err, "a stream is resumed on the new one by who reads it")
		require.NoError(t, check(h, time.Second))
		require.Equal(t, 1, i.wire.Open(farAddr))
		h.Release()
	})
}

func TestIdentity_LongLivedCertificatesKeepTheConnection(t *testing.T) {
	withIdentities(t, 23*time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		h := take(t, i.pool)
		for range 22 {
			require.NoError(t, check(h, time.Second))
			time.Sleep(time.Hour)
		}
		require.Equal(t, 1, i.wire.Dials(farAddr))
		require.GreaterOrEqual(t, i.strict.lifetime, 10*time.Minute-time.Second)
		// Nobody rotates: before tokens would have to shrink, another handshake
		// is tried.
		time.Sleep(55 * time.Minute)
		require.NoError(t, check(h, time.Second))
		require.Greater(t, i.wire.Dials(farAddr), 1)
		h.Release()
	})
}

func TestIdentity_PeersCertificateBoundsIt(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		h := take(t, i.pool)
		require.NoError(t, check(h, time.Second))
		require.NoError(t, i.own.Rotate())
		require.NoError(t, check(h, time.Second))
		time.Sleep(30 * time.Minute)
		require.NoError(t, i.own.Rotate()) // ours is good for an hour now, theirs for half
		require.NoError(t, i.far.Rotate())
		for range 4 {
			require.NoError(t, check(h, time.Second))
			time.Sleep(7 * time.Minute)
		}
		require.GreaterOrEqual(t, i.strict.lifetime, 10*time.Minute-time.Second, "tokens keep their length")
		require.Zero(t, i.strict.refused)
		h.Release()
	})
}

// Nobody but its Workload API can do anything about a certificate that runs out.
func TestIdentity_OwnCertificateIsNoReasonToDialAgain(t *testing.T) {
	withProbes(t, time.Minute, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		h := take(t, i.pool)
		require.NoError(t, check(h, time.Second))
		time.Sleep(30 * time.Minute)
		require.NoError(t, i.far.Rotate())
		require.NoError(t, i.own.Rotate())
		synctest.Wait()
		dials := i.wire.Dials(farAddr)
		for range 9 {
			time.Sleep(6 * time.Minute)
			require.NoError(t, i.far.Rotate())
			require.NoError(t, check(h, time.Second))
		}
		require.Equal(t, dials+1, i.wire.Dials(farAddr), "for the peer's, which has another by then")
		h.Release()
	})
}

// With TLS 1.3 a peer's refusal comes after our side of the handshake.
func TestIdentity_RefusedInTheHandshakeIsNotConnected(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		time.Sleep(2 * time.Hour)
		require.NoError(t, i.far.Rotate()) // and ours has run out
		h := take(t, i.pool)
		require.Error(t, check(h, time.Second))
		time.Sleep(time.Minute)
		require.Greater(t, i.wire.Dials(farAddr), 5)
		require.Zero(t, i.pool.Status()[0].Dials)
		require.NoError(t, i.own.Rotate())
		time.Sleep(5 * time.Second)
		require.NoError(t, check(h, time.Second))
		require.Equal(t, 1, i.pool.Status()[0].Dials)
		h.Release()
	})
}

package nsmgrproxy_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/chains/memory"
	"github.com/networkservicemesh/sdk/pkg/registry/common/authorize"
	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	registrychain "github.com/networkservicemesh/sdk/pkg/registry/core/chain"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/authz"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// The masks that the stock commands have by default.
var (
	serverMasks = []string{"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/server/.*.rego"}
	clientMasks = []string{"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/client/.*.rego"}
)

// policed is a proxy between a neighbour and the SDK's own registry, with the
// default policies on in both, in a bubble of fake time.
type policed struct {
	*testing.T
	wire           *lbtest.Wire
	near, own, far *identitytest.Source
	signer         *identitytest.Source // of the far side's tokens
	ca             *identitytest.CA     // the far side's
	ns             registry.NetworkServiceRegistryClient
	nse            registry.NetworkServiceEndpointRegistryClient
}

func inPolicedBubble(t *testing.T, f func(p *policed)) {
	t.Helper()
	server, err := authz.Load(serverMasks)
	require.NoError(t, err)
	client, err := authz.Load(clientMasks)
	require.NoError(t, err)
	theirs := authorize.WithPolicies(serverMasks...)
	synctest.Test(t, func(t *testing.T) {
		p := &policed{T: t, wire: lbtest.NewWire()}
		one, err := identitytest.NewCA("nsm.cluster1")
		require.NoError(t, err)
		two, err := identitytest.NewCA("nsm.cluster2")
		require.NoError(t, err)
		p.near = p.source(one, "nsmgr", 23*time.Hour, two)
		p.own = p.source(one, "nsmgr-proxy", 23*time.Hour, two)
		p.far = p.source(two, "registry", time.Hour, one)
		p.signer, p.ca = p.far, two

		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		far := memory.NewServer(ctx, func(peer credentials.AuthInfo) (string, time.Time, error) { return p.tokens(p.signer)(peer) },
			memory.WithDefaultExpiration(tokenTime),
			memory.WithAuthorizeNSRegistryServer(authorize.NewNetworkServiceRegistryServer(theirs)),
			memory.WithAuthorizeNSERegistryServer(authorize.NewNetworkServiceEndpointRegistryServer(theirs)))
		defer p.serve(registryProxyAddr, p.far, far.Register)()

		at := &url.URL{Scheme: "tcp", Host: registryProxyAddr}
		chain := nsmgrproxy.NewServer(ctx, at, at, p.tokens(p.own),
			nsmgrproxy.WithName("proxy"), nsmgrproxy.WithListenOn(&url.URL{Scheme: "tcp", Host: proxyAddr}),
			nsmgrproxy.WithMapIPFilePath(""), nsmgrproxy.WithWaitGroup(&wg),
			nsmgrproxy.WithDialOptions(p.dialOptions(p.own)...),
			nsmgrproxy.WithIdentity(p.own, tokenTime),
			nsmgrproxy.WithAuthorizeNSRegistryServer(authz.NewNetworkServiceRegistryServer(server)),
			nsmgrproxy.WithAuthorizeNSERegistryServer(authz.NewNetworkServiceEndpointRegistryServer(server)),
			nsmgrproxy.WithAuthorizeNSRegistryClient(authz.NewNetworkServiceRegistryClient(client)),
			nsmgrproxy.WithAuthorizeNSERegistryClient(authz.NewNetworkServiceEndpointRegistryClient(client)))
		defer p.serve(proxyAddr, p.own, func(s *grpc.Server) {
			registry.RegisterNetworkServiceRegistryServer(s, chain.NetworkServiceRegistryServer())
			registry.RegisterNetworkServiceEndpointRegistryServer(s, chain.NetworkServiceEndpointRegistryServer())
		})()
		cc, err := grpc.NewClient("passthrough:///"+proxyAddr, p.dialOptions(p.near)...)
		require.NoError(t, err)
		defer func() { require.NoError(t, cc.Close()) }()
		p.ns = registrychain.NewNetworkServiceRegistryClient(
			grpcmetadata.NewNetworkServiceRegistryClient(), registry.NewNetworkServiceRegistryClient(cc))
		p.nse = registrychain.NewNetworkServiceEndpointRegistryClient(
			grpcmetadata.NewNetworkServiceEndpointRegistryClient(), registry.NewNetworkServiceEndpointRegistryClient(cc))
		f(p)
	})
}

func (p *policed) source(ca *identitytest.CA, path string, ttl time.Duration, federated ...*identitytest.CA) *identitytest.Source {
	source, err := identitytest.NewSource(ca, path, ttl, federated...)
	require.NoError(p, err)
	return source
}

func (p *policed) tokens(source *identitytest.Source) token.GeneratorFunc {
	return spiffejwt.TokenGeneratorFunc(source, tokenTime)
}

func (p *policed) dialOptions(source *identitytest.Source) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(p.wire.Dial),
		grpc.WithTransportCredentials(credentials.NewTLS(tlsconfig.MTLSClientConfig(source, source, tlsconfig.AuthorizeAny()))),
		grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(p.tokens(source)))),
	}
}

func (p *policed) serve(addr string, source *identitytest.Source, register func(*grpc.Server)) (stop func()) {
	tls := credentials.NewTLS(tlsconfig.MTLSServerConfig(source, source, tlsconfig.AuthorizeAny()))
	s := grpc.NewServer(grpc.Creds(tls))
	register(s)
	listener := p.wire.Listen(addr)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	return func() {
		s.Stop()
		require.NoError(p, <-done)
	}
}

// register registers a service and an endpoint, again if they are known.
func (p *policed) register(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if _, err := p.ns.Register(p.fresh(ctx), &registry.NetworkService{Name: name}); err != nil {
		return err
	}
	_, err := p.nse.Register(p.fresh(ctx), &registry.NetworkServiceEndpoint{
		Name: name, Url: "tcp://10.0.1.9:5001", NetworkServiceNames: []string{name},
	})
	return err
}

func (p *policed) unregister(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if _, err := p.nse.Unregister(p.fresh(ctx), &registry.NetworkServiceEndpoint{Name: name}); err != nil {
		return err
	}
	_, err := p.ns.Unregister(p.fresh(ctx), &registry.NetworkService{Name: name})
	return err
}

// fresh is a call with a path of its own, as each has.
func (p *policed) fresh(ctx context.Context) context.Context {
	return grpcmetadata.PathWithContext(ctx, new(grpcmetadata.Path))
}

// watch watches an endpoint, and returns what tells how often it was heard of and
// whether the watch has ended.
func (p *policed) watch(ctx context.Context, name string) (heard func() int, ended func() bool) {
	stream, err := p.nse.Find(ctx, &registry.NetworkServiceEndpointQuery{
		NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name}, Watch: true,
	})
	require.NoError(p, err)
	var n atomic.Int64
	var over atomic.Bool
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				over.Store(true)
				return
			}
			n.Add(1)
		}
	}()
	return func() int { return int(n.Load()) }, over.Load
}

func TestRotation_OfTheFarRegistryRefusesNoRegistration(t *testing.T) {
	inPolicedBubble(t, func(p *policed) {
		require.NoError(p, p.register("known"))
		for range 6 {
			time.Sleep(25 * time.Minute)
			dials := p.wire.Dials(registryProxyAddr)
			require.NoError(p, p.far.Rotate())
			require.NoError(p, p.register("known"), "refreshed")
			time.Sleep(time.Minute)
			require.NoError(p, p.far.Rotate())
			require.NoError(p, p.register("new"))
			require.NoError(p, p.register("known"))
			time.Sleep(time.Minute)
			require.NoError(p, p.far.Rotate())
			require.NoError(p, p.unregister("new"))
			require.Equal(p, dials+3, p.wire.Dials(registryProxyAddr), "one connection for each rotation")
		}
		time.Sleep(time.Minute)
		require.Equal(p, 1, p.wire.Open(registryProxyAddr), "old connections are gone")
	})
}

func TestRotation_OfBothSidesAtOnce(t *testing.T) {
	inPolicedBubble(t, func(p *policed) {
		for range 6 {
			require.NoError(p, p.own.Rotate())
			synctest.Wait() // the new connection has the far side's old certificate
			require.NoError(p, p.far.Rotate())
			require.NoError(p, p.register("known"))
			require.NoError(p, p.far.Rotate())
			require.NoError(p, p.register("known"))
		}
	})
}

// Such a registry is refused, as in stock, but not dialled for each call.
func TestRotation_RegistryBehindAnothersTLS(t *testing.T) {
	inPolicedBubble(t, func(p *policed) {
		p.signer = p.source(p.ca, "registry", time.Hour)
		for range 10 {
			require.Error(p, p.register("known"))
			time.Sleep(time.Minute)
		}
		require.Equal(p, 2, p.wire.Dials(registryProxyAddr))
		p.signer = p.far
		require.NoError(p, p.register("known"))
		require.NoError(p, p.far.Rotate())
		require.NoError(p, p.register("known"))
	})
}

func TestRotation_ManyRegistrationsShareOneRenewal(t *testing.T) {
	inPolicedBubble(t, func(p *policed) {
		require.NoError(p, p.register("first"))
		time.Sleep(time.Minute)
		require.NoError(p, p.far.Rotate())
		var wg sync.WaitGroup
		failed := make(chan error, 20)
		for n := range cap(failed) {
			wg.Go(func() {
				if err := p.register(fmt.Sprintf("endpoint-%d", n)); err != nil {
					failed <- err
				}
			})
		}
		wg.Wait()
		close(failed)
		for err := range failed {
			require.NoError(p, err)
		}
		require.Equal(p, 2, p.wire.Dials(registryProxyAddr))
	})
}

func TestRotation_OfEitherSideBreaksNoWatch(t *testing.T) {
	inPolicedBubble(t, func(p *policed) {
		require.NoError(p, p.register("known"))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		heard, ended := p.watch(ctx, "known")
		for range 6 {
			time.Sleep(time.Minute)
			require.NoError(p, p.own.Rotate())
			time.Sleep(time.Minute)
			require.NoError(p, p.far.Rotate())
			before := heard()
			require.NoError(p, p.register("known"))
			synctest.Wait()
			require.False(p, ended())
			require.Greater(p, heard(), before, "and it says what is new")
		}
		time.Sleep(time.Minute)
		require.Equal(p, 2, p.wire.Open(registryProxyAddr), "that of the watch, and the current one")
		cancel()
		synctest.Wait()
		require.True(p, ended())
		require.Equal(p, 1, p.wire.Open(registryProxyAddr), "gone with its last call")
	})
}

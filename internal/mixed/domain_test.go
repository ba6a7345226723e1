package mixed

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
)

const (
	// tokenTime is the shipped NSM_MAX_TOKEN_LIFETIME.
	tokenTime = 10 * time.Minute
	// svidTime outlives every test.
	svidTime = 23 * time.Hour
)

// domain is what surrounds a proxy: who it is, and a registry that stands for
// the registry proxy, too.
type domain struct {
	dir       string
	agent     *identitytest.WorkloadAPI
	neighbour *identitytest.Source
	registry  *names
	at        string // the registry's address
	// handshakes counts those with the neighbours.
	handshakes atomic.Int64
}

// newDomains makes the client's domain and the endpoint's. Each trusts the other.
func newDomains(t testing.TB) (client, endpoint *domain) {
	t.Helper()
	one, err := identitytest.NewCA("nsm.cluster1")
	require.NoError(t, err)
	two, err := identitytest.NewCA("nsm.cluster2")
	require.NoError(t, err)
	return newDomain(t, one, two), newDomain(t, two, one)
}

func newDomain(t testing.TB, own, other *identitytest.CA) *domain {
	t.Helper()
	dir, err := os.MkdirTemp("", "mixed") // a socket's path must not exceed 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &domain{dir: dir, registry: &names{urls: make(map[string]string)}}
	d.agent, err = identitytest.ServeWorkloadAPI(filepath.Join(dir, "agent"), own, "nsmgr-proxy",
		identitytest.WithTTL(svidTime), identitytest.WithFederated(other))
	require.NoError(t, err)
	t.Cleanup(d.agent.Close)
	d.neighbour, err = identitytest.NewSource(own, "neighbour", svidTime, other)
	require.NoError(t, err)
	d.at, _ = d.serve(t, func(s *grpc.Server) { registry.RegisterNetworkServiceEndpointRegistryServer(s, d.registry) })
	return d
}

// serve serves a neighbour of the proxy until it is stopped or the test ends.
func (d *domain) serve(t testing.TB, register func(*grpc.Server), opts ...grpc.ServerOption) (addr string, stop func()) {
	t.Helper()
	server := grpc.NewServer(append(opts, grpc.Creds(identitytest.CountHandshakes(d.neighbour.ServerCredentials(), &d.handshakes)))...)
	register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	stop = sync.OnceFunc(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// dialOptions are how a neighbour connects. Its calls carry tokens.
func (d *domain) dialOptions() []grpc.DialOption {
	tokens := token.NewPerRPCCredentials(spiffejwt.TokenGeneratorFunc(d.neighbour, tokenTime))
	return []grpc.DialOption{
		grpc.WithTransportCredentials(d.neighbour.ClientCredentials()),
		grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(tokens)),
		// A proxy that restarts is to be found at once.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: callTime}),
	}
}

// dial connects a neighbour to the proxy at addr.
func (d *domain) dial(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, d.dialOptions()...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// names is a registry that only knows where endpoints are.
type names struct {
	registry.UnimplementedNetworkServiceEndpointRegistryServer
	mu   sync.Mutex
	urls map[string]string // guarded by mu
}

func (n *names) set(name, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.urls[name] = "tcp://" + addr
}

func (n *names) Find(query *registry.NetworkServiceEndpointQuery, stream registry.NetworkServiceEndpointRegistry_FindServer) error {
	name := query.GetNetworkServiceEndpoint().GetName()
	n.mu.Lock()
	u, ok := n.urls[name]
	n.mu.Unlock()
	if !ok {
		return nil
	}
	return stream.Send(&registry.NetworkServiceEndpointResponse{
		NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name, Url: u},
	})
}

// find is how the domain's nsmgr learns of an endpoint: through the proxy. A stock
// one knows no other names than those that were looked up so.
func find(t testing.TB, cc grpc.ClientConnInterface, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	stream, err := registry.NewNetworkServiceEndpointRegistryClient(cc).Find(ctx, &registry.NetworkServiceEndpointQuery{
		NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name},
	}, grpc.WaitForReady(true))
	require.NoError(t, err)
	found := registry.ReadNetworkServiceEndpointList(stream)
	require.Len(t, found, 1)
}

// home registers an endpoint of this domain that is reached at addr, and those in front
// of it, as whom a lbtest.Peer of the name "far" answers: forwarders are registered, too.
func (d *domain) home(endpoint, addr string) {
	d.registry.set(endpoint, addr)
	for place := range 10 {
		d.registry.set(fmt.Sprintf("far-%d", place), addr)
	}
}

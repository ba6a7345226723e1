package hostile_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	endpointName = "endpoint@cluster2"
	serviceName  = "service@cluster2"
	// silentName is an endpoint whose nsmgr takes Requests and answers none.
	silentName = "silent@cluster2"

	// svidTTL outlives every run: renewal is not what this is about.
	svidTTL = time.Hour
	// tokenTTL is the shipped NSM_MAX_TOKEN_LIFETIME.
	tokenTTL = 10 * time.Minute
)

// neighbours are all that a proxy has around it: a Workload API, registries that
// answer, and the far side of every connection.
type neighbours struct {
	dir      string
	ca       *identitytest.CA
	agent    string
	source   *identitytest.Source
	far      *lbtest.Peer
	registry string // host:port of both registries
}

func newNeighbours(t *testing.T) *neighbours {
	dir, err := os.MkdirTemp("", "hostile") // t.TempDir may exceed the 108 bytes of a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ca, err := identitytest.NewCA("nsm.one")
	require.NoError(t, err)
	api, err := identitytest.ServeWorkloadAPI(filepath.Join(dir, "agent"), ca, "nsmgr-proxy")
	require.NoError(t, err)
	t.Cleanup(api.Close)
	source, err := identitytest.NewSource(ca, "neighbour", svidTTL)
	require.NoError(t, err)

	n := &neighbours{dir: dir, ca: ca, agent: api.Addr(), source: source, far: lbtest.NewPeer("far")}
	far := n.serve(t, n.far.Register)
	silent := lbtest.NewPeer("silent")
	silent.Set(lbtest.Faults{RequestDelay: svidTTL})
	quiet := n.serve(t, silent.Register)
	n.registry = n.serve(t, func(s *grpc.Server) {
		registry.RegisterNetworkServiceEndpointRegistryServer(s, &endpoints{urls: map[string]string{endpointName: "tcp://" + far, silentName: "tcp://" + quiet}})
		registry.RegisterNetworkServiceRegistryServer(s, services{})
	})
	return n
}

// as returns the neighbours as they are for somebody else.
func (n *neighbours) as(t *testing.T, who string) *neighbours {
	source, err := identitytest.NewSource(n.ca, who, svidTTL)
	require.NoError(t, err)
	other := *n
	other.source = source
	return &other
}

func (n *neighbours) serve(t *testing.T, register func(*grpc.Server)) (hostPort string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(tlsconfig.MTLSServerConfig(n.source, n.source, tlsconfig.AuthorizeAny()))),
		grpc.WaitForHandlers(true))
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
	return listener.Addr().String()
}

// tokens has calls carry a token, as neighbours do.
func (n *neighbours) tokens() grpc.DialOption {
	generator := spiffejwt.TokenGeneratorFunc(n.source, tokenTTL)
	return grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(generator)))
}

func (n *neighbours) dial(t *testing.T, hostPort string, opts ...grpc.DialOption) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:"+hostPort, append(opts,
		grpc.WithTransportCredentials(credentials.NewTLS(tlsconfig.MTLSClientConfig(n.source, n.source, tlsconfig.AuthorizeAny()))))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// goodRequest is what a forwarder sends first for the connection of that number.
func goodRequest(number string) *networkservice.NetworkServiceRequest {
	return lbtest.NewRequest(number, serviceName, endpointName)
}

// endpoints is a registry that accepts everything and knows one endpoint.
type endpoints struct {
	registry.UnimplementedNetworkServiceEndpointRegistryServer
	urls map[string]string
}

// sendBack answers the path in the headers, as the SDK's registries do.
func sendBack(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	return grpc.SendHeader(ctx, metadata.MD{"path": md.Get("path")})
}

func (e *endpoints) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	return nse, sendBack(ctx)
}

func (e *endpoints) Unregister(ctx context.Context, _ *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	return new(emptypb.Empty), sendBack(ctx)
}

func (e *endpoints) Find(query *registry.NetworkServiceEndpointQuery, found registry.NetworkServiceEndpointRegistry_FindServer) error {
	name := query.GetNetworkServiceEndpoint().GetName()
	u, ok := e.urls[name]
	if !ok {
		return nil
	}
	return found.Send(&registry.NetworkServiceEndpointResponse{
		NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name, Url: u},
	})
}

type services struct {
	registry.UnimplementedNetworkServiceRegistryServer
}

func (services) Register(ctx context.Context, ns *registry.NetworkService) (*registry.NetworkService, error) {
	return ns, sendBack(ctx)
}

func (services) Unregister(ctx context.Context, _ *registry.NetworkService) (*emptypb.Empty, error) {
	return new(emptypb.Empty), sendBack(ctx)
}

func (services) Find(*registry.NetworkServiceQuery, registry.NetworkServiceRegistry_FindServer) error {
	return nil
}

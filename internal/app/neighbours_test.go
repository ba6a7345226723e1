package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	// svidTime outlives every test.
	svidTime = time.Hour
	// tokenTime is the shipped NSM_MAX_TOKEN_LIFETIME.
	tokenTime = 10 * time.Minute
	// callTime is for a call that finds nobody: failures of the transport are retried
	// until a second before its end.
	callTime = 2 * time.Second
)

func newCA(t *testing.T, domain string) *identitytest.CA {
	ca, err := identitytest.NewCA(domain)
	require.NoError(t, err)
	return ca
}

// neighbour is somebody with a certificate and, if asked, with tokens.
type neighbour struct {
	*testing.T
	name   string
	source *identitytest.Source
}

// newNeighbour trusts its own domain and that of the process.
func newNeighbour(t *testing.T, name string, ca *identitytest.CA, here *place) *neighbour {
	source, err := identitytest.NewSource(ca, name, svidTime, here.ca)
	require.NoError(t, err)
	return &neighbour{T: t, name: name, source: source}
}

func (n *neighbour) tokens() token.GeneratorFunc {
	return spiffejwt.TokenGeneratorFunc(n.source, tokenTime)
}

// tokenFor is a token that the neighbour gave to the next one of a path.
func (n *neighbour) tokenFor(next *neighbour) string {
	svid, err := next.source.GetX509SVID()
	require.NoError(n, err)
	tok, _, err := n.tokens()(credentials.TLSInfo{
		State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{svid.Certificates[0]}},
	})
	require.NoError(n, err)
	return tok
}

// dial connects to the process; calls carry tokens of the generator if there is one.
func (n *neighbour) dial(here *place, tokens token.GeneratorFunc) *grpc.ClientConn {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(n.source.ClientCredentials())}
	if tokens != nil {
		opts = append(opts, grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(tokens))))
	}
	cc, err := grpc.NewClient("unix://"+here.listener, opts...)
	require.NoError(n, err)
	n.Cleanup(func() { _ = cc.Close() })
	return cc
}

// request is for the connection of that number to an endpoint, as the last of a path
// of neighbours sends it.
func request(cc *grpc.ClientConn, number, endpoint string, path ...*neighbour) (*networkservice.Connection, error) {
	return requestWithin(wait, cc, number, endpoint, path...)
}

func requestWithin(
	patience time.Duration, cc *grpc.ClientConn, number, endpoint string, path ...*neighbour,
) (*networkservice.Connection, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, domain, _ := strings.Cut(endpoint, "@")
	r := lbtest.NewRequest(number, "service@"+domain, endpoint)
	segments := r.GetConnection().GetPath().GetPathSegments()
	for i, n := range path {
		segments[i].Name = n.name
		if i > 0 {
			segments[i-1].Token = path[i-1].tokenFor(n)
		}
	}
	return networkservice.NewNetworkServiceClient(cc).Request(ctx, r)
}

// watch subscribes to the connection of that number, as its forwarder does, and
// returns what comes first.
func watch(cc *grpc.ClientConn, number string) (*networkservice.ConnectionEvent, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	stream, err := networkservice.NewMonitorConnectionClient(cc).MonitorConnections(ctx, &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Name: "forwarder", Id: "forwarder-" + number}},
	})
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// registerService and registerEndpoint register in another domain.
func registerService(cc *grpc.ClientConn, name string) error {
	ctx, cancel := withPath()
	defer cancel()
	_, err := next.NewNetworkServiceRegistryClient(
		grpcmetadata.NewNetworkServiceRegistryClient(),
		registry.NewNetworkServiceRegistryClient(cc),
	).Register(ctx, &registry.NetworkService{Name: name})
	return err
}

func registerEndpoint(cc *grpc.ClientConn, name string) error {
	ctx, cancel := withPath()
	defer cancel()
	_, err := next.NewNetworkServiceEndpointRegistryClient(
		grpcmetadata.NewNetworkServiceEndpointRegistryClient(),
		registry.NewNetworkServiceEndpointRegistryClient(cc),
	).Register(ctx, &registry.NetworkServiceEndpoint{Name: name, Url: "tcp://127.0.0.1:1"})
	return err
}

// withPath is the context of a registry call, which has a path of its own.
func withPath() (context.Context, context.CancelFunc) {
	return context.WithTimeout(grpcmetadata.PathWithContext(context.Background(), new(grpcmetadata.Path)), wait)
}

// far is the other end of connections, in a domain of its own.
type far struct {
	*lbtest.Peer
	url string
	// refused and let in are the handshakes of those who connected.
	refused, letIn atomic.Int32
}

func newFar(t *testing.T, ca *identitytest.CA, here *place) *far {
	f := &far{Peer: lbtest.NewPeer("far")}
	creds := &handshakes{TransportCredentials: newNeighbour(t, "far", ca, here).source.ServerCredentials(), far: f}
	f.url = serveTCP(t, creds, f.Register)
	return f
}

// handshakes counts them.
type handshakes struct {
	credentials.TransportCredentials
	far *far
}

func (h *handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		h.far.refused.Add(1)
	} else {
		h.far.letIn.Add(1)
	}
	return conn, info, err
}

func serveTCP(t *testing.T, creds credentials.TransportCredentials, register func(*grpc.Server)) (url string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(grpc.Creds(creds), grpc.WaitForHandlers(true))
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
	return "tcp://" + listener.Addr().String()
}

// registries are those of the domain: they know some endpoints by name, and accept
// whatever is registered without adding a token of their own to the path.
type registries struct {
	registry.UnimplementedNetworkServiceEndpointRegistryServer
	urls       map[string]string
	registered atomic.Int32
}

func newRegistries(t *testing.T, here *place, urls map[string]string) *registries {
	r := &registries{urls: urls}
	url := serveTCP(t, newNeighbour(t, "registry", here.ca, here).source.ServerCredentials(), func(s *grpc.Server) {
		registry.RegisterNetworkServiceEndpointRegistryServer(s, r)
		registry.RegisterNetworkServiceRegistryServer(s, &services{registries: r})
	})
	// The first of several values of a variable counts.
	here.environ = append([]string{"NSM_REGISTRY_URL=" + url, "NSM_REGISTRY_PROXY_URL=" + url}, here.environ...)
	return r
}

// accept answers the path as it came.
func (r *registries) accept(ctx context.Context) error {
	r.registered.Add(1)
	md, _ := metadata.FromIncomingContext(ctx)
	return grpc.SendHeader(ctx, metadata.MD{"path": md.Get("path")})
}

func (r *registries) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	return nse, r.accept(ctx)
}

// Unregister is what a client does about an answer that it refuses.
func (r *registries) Unregister(context.Context, *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	return new(emptypb.Empty), nil
}

func (r *registries) Find(query *registry.NetworkServiceEndpointQuery, found registry.NetworkServiceEndpointRegistry_FindServer) error {
	name := query.GetNetworkServiceEndpoint().GetName()
	if r.urls[name] == "" {
		return nil
	}
	return found.Send(&registry.NetworkServiceEndpointResponse{
		NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name, Url: r.urls[name]},
	})
}

type services struct {
	registry.UnimplementedNetworkServiceRegistryServer
	registries *registries
}

func (s *services) Register(ctx context.Context, ns *registry.NetworkService) (*registry.NetworkService, error) {
	return ns, s.registries.accept(ctx)
}

func (s *services) Unregister(context.Context, *registry.NetworkService) (*emptypb.Empty, error) {
	return new(emptypb.Empty), nil
}

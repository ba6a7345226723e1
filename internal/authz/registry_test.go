package authz_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/common/authorize"
	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/authz"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/race"
)

// The masks that the stock commands have by default.
var (
	serverMasks = []string{"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/server/.*.rego"}
	clientMasks = []string{"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/client/.*.rego"}
	ownerMasks  = []string{"etc/nsm/opa/registry/.*.rego"}
)

func load(t testing.TB, masks []string) []authz.Policy {
	policies, err := authz.Load(masks)
	require.NoError(t, err)
	require.NotEmpty(t, policies)
	return policies
}

// tokenFor is a token that the neighbour gave to another one.
func (n *neighbour) tokenFor(other *neighbour) string {
	tok, _, err := spiffejwt.TokenGeneratorFunc(n.source, time.Minute)(other.tls())
	require.NoError(n, err)
	return tok
}

func (n *neighbour) id() string { return "spiffe://nsm.cluster1/" + n.name }

func (n *neighbour) tls() credentials.TLSInfo {
	svid, err := n.source.GetX509SVID()
	require.NoError(n, err)
	return credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{svid.Certificates[0]}}}
}

// call is one on a registry, as it arrives.
type call struct {
	unregister bool
	name       string
	owner      *neighbour // who the path begins with
	caller     *neighbour // whose TLS it comes over
	fails      bool       // further on
	renamed    string     // by the registry, if not empty
	answered   *neighbour // whose TLS the answer comes over
	tail       bool       // the path leads on behind us, where nobody vouches for it
}

// beyond is the registry behind an element, or behind a client's. It notes what gets
// through.
type beyond struct {
	call *call
	seen []string
	far  *neighbour
	ttl  time.Duration
}

func (b *beyond) do(ctx context.Context, kind, name string, opts []grpc.CallOption) error {
	b.seen = append(b.seen, kind+" "+name)
	if b.call.fails {
		return errors.New("no")
	}
	for _, opt := range opts {
		if p, ok := opt.(grpc.PeerCallOption); ok {
			*p.PeerAddr = peer.Peer{AuthInfo: b.call.answered.tls()}
		}
	}
	if path := grpcmetadata.PathFromContext(ctx); b.far != nil && len(path.PathSegments) == 2 {
		path.PathSegments = append(path.PathSegments, &grpcmetadata.PathSegment{Token: b.far.tokenFor(b.far)})
	}
	return nil
}

func (b *beyond) answer(nse *registry.NetworkServiceEndpoint) *registry.NetworkServiceEndpoint {
	nse = nse.Clone()
	if b.call.renamed != "" {
		nse.Name = b.call.renamed
	}
	if b.ttl > 0 {
		nse.ExpirationTime = timestamppb.New(time.Now().Add(b.ttl))
	}
	return nse
}

type endpointsBeyond struct {
	registry.NetworkServiceEndpointRegistryServer
	*beyond
}

func (e endpointsBeyond) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	return e.answer(nse), e.do(ctx, "register", nse.GetName(), nil)
}

func (e endpointsBeyond) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	return new(emptypb.Empty), e.do(ctx, "unregister", nse.GetName(), nil)
}

type servicesBeyond struct {
	registry.NetworkServiceRegistryServer
	*beyond
}

func (s servicesBeyond) Register(ctx context.Context, ns *registry.NetworkService) (*registry.NetworkService, error) {
	answer := s.answer(&registry.NetworkServiceEndpoint{Name: ns.GetName()})
	return &registry.NetworkService{Name: answer.GetName(), PathIds: ns.GetPathIds()}, s.do(ctx, "register", ns.GetName(), nil)
}

func (s servicesBeyond) Unregister(ctx context.Context, ns *registry.NetworkService) (*emptypb.Empty, error) {
	return new(emptypb.Empty), s.do(ctx, "unregister", ns.GetName(), nil)
}

type endpointsClient struct {
	registry.NetworkServiceEndpointRegistryClient
	*beyond
}

func (e endpointsClient) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*registry.NetworkServiceEndpoint, error) {
	return e.answer(nse), e.do(ctx, "register", nse.GetName(), opts)
}

func (e endpointsClient) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	return new(emptypb.Empty), e.do(ctx, "unregister", nse.GetName(), opts)
}

type servicesClient struct {
	registry.NetworkServiceRegistryClient
	*beyond
}

func (s servicesClient) Register(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*registry.NetworkService, error) {
	answer := s.answer(&registry.NetworkServiceEndpoint{Name: ns.GetName()})
	return &registry.NetworkService{Name: answer.GetName(), PathIds: ns.GetPathIds()}, s.do(ctx, "register", ns.GetName(), opts)
}

func (s servicesClient) Unregister(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	return new(emptypb.Empty), s.do(ctx, "unregister", ns.GetName(), opts)
}

// authorizer makes a call on an element.
type authorizer func(ctx context.Context, c *call, nse *registry.NetworkServiceEndpoint) error

func onEndpoints(s registry.NetworkServiceEndpointRegistryServer) authorizer {
	return func(ctx context.Context, c *call, nse *registry.NetworkServiceEndpoint) error {
		if c.unregister {
			return failure(s.Unregister(ctx, nse))
		}
		return failure(s.Register(ctx, nse))
	}
}

func onServices(s registry.NetworkServiceRegistryServer) authorizer {
	return func(ctx context.Context, c *call, nse *registry.NetworkServiceEndpoint) error {
		ns := &registry.NetworkService{Name: nse.GetName(), PathIds: nse.GetPathIds()}
		if c.unregister {
			return failure(s.Unregister(ctx, ns))
		}
		return failure(s.Register(ctx, ns))
	}
}

func ofEndpoints(s registry.NetworkServiceEndpointRegistryClient) authorizer {
	return func(ctx context.Context, c *call, nse *registry.NetworkServiceEndpoint) error {
		if c.unregister {
			return failure(s.Unregister(ctx, nse))
		}
		return failure(s.Register(ctx, nse))
	}
}

func ofServices(s registry.NetworkServiceRegistryClient) authorizer {
	return func(ctx context.Context, c *call, nse *registry.NetworkServiceEndpoint) error {
		ns := &registry.NetworkService{Name: nse.GetName(), PathIds: nse.GetPathIds()}
		if c.unregister {
			return failure(s.Unregister(ctx, ns))
		}
		return failure(s.Register(ctx, ns))
	}
}

func failure(_ any, err error) error { return err }

// make makes a call and returns what came of it.
func (c *call) make(a authorizer, b *beyond, us *neighbour) codes.Code {
	b.call = c
	path := &grpcmetadata.Path{Index: 1, PathSegments: []*grpcmetadata.PathSegment{
		{Token: c.owner.tokenFor(us)}, {Token: us.tokenFor(us)},
	}}
	ctx := peer.NewContext(grpcmetadata.PathWithContext(context.Background(), path), &peer.Peer{AuthInfo: c.caller.tls()})
	if b.far != nil {
		path.PathSegments[1].Token = us.tokenFor(b.far)
	} else if c.tail {
		path.PathSegments = append(path.PathSegments, &grpcmetadata.PathSegment{Token: "none"})
	}
	return status.Code(a(ctx, c, &registry.NetworkServiceEndpoint{Name: c.name, PathIds: []string{c.owner.id(), us.id()}}))
}

// The SDK's elements and ours are given the same calls, and are to decide the same and
// to pass on the same.
func TestRegistry_DecidesAsTheSDK(t *testing.T) {
	us, far := newNeighbour(t, "us"), newNeighbour(t, "far")
	owners := []*neighbour{newNeighbour(t, "a"), newNeighbour(t, "b"), newNeighbour(t, "c")}
	names := []string{"one@cluster2", "two@cluster2", "three@cluster2", "three-1@cluster2"}
	server, client := authorize.WithPolicies(serverMasks...), authorize.WithPolicies(clientMasks...)
	for what, pair := range map[string]func(b *beyond) (sdk, ours authorizer){
		"endpoints": func(b *beyond) (sdk, ours authorizer) {
			return onEndpoints(next.NewNetworkServiceEndpointRegistryServer(authorize.NewNetworkServiceEndpointRegistryServer(server), endpointsBeyond{beyond: b})),
				onEndpoints(next.NewNetworkServiceEndpointRegistryServer(authz.NewNetworkServiceEndpointRegistryServer(load(t, serverMasks)), endpointsBeyond{beyond: b}))
		},
		"services": func(b *beyond) (sdk, ours authorizer) {
			return onServices(next.NewNetworkServiceRegistryServer(authorize.NewNetworkServiceRegistryServer(server), servicesBeyond{beyond: b})),
				onServices(next.NewNetworkServiceRegistryServer(authz.NewNetworkServiceRegistryServer(load(t, serverMasks)), servicesBeyond{beyond: b}))
		},
		"answers about endpoints": func(b *beyond) (sdk, ours authorizer) {
			b.far = far
			return ofEndpoints(next.NewNetworkServiceEndpointRegistryClient(authorize.NewNetworkServiceEndpointRegistryClient(client), endpointsClient{beyond: b})),
				ofEndpoints(next.NewNetworkServiceEndpointRegistryClient(authz.NewNetworkServiceEndpointRegistryClient(load(t, clientMasks)), endpointsClient{beyond: b}))
		},
		"answers about services": func(b *beyond) (sdk, ours authorizer) {
			b.far = far
			return ofServices(next.NewNetworkServiceRegistryClient(authorize.NewNetworkServiceRegistryClient(client), servicesClient{beyond: b})),
				ofServices(next.NewNetworkServiceRegistryClient(authz.NewNetworkServiceRegistryClient(load(t, clientMasks)), servicesClient{beyond: b}))
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := new(beyond)
			sdk, ours := pair(b)
			random := rand.New(rand.NewPCG(1, 2))
			decided := make(map[codes.Code]int)
			for n := range calls() {
				c := &call{
					unregister: random.IntN(3) == 0, name: names[random.IntN(3)],
					owner: owners[random.IntN(len(owners))], fails: random.IntN(8) == 0, answered: far,
					tail: random.IntN(2) == 0,
				}
				if c.caller = c.owner; random.IntN(10) == 0 {
					c.caller = us // somebody who has another's token
				}
				if random.IntN(10) == 0 {
					c.answered = us // somebody who answers in another's name
				}
				if random.IntN(5) == 0 {
					c.renamed = names[random.IntN(len(names))]
				}
				want := c.make(sdk, b, us)
				passed := b.seen
				b.seen = nil
				got := c.make(ours, b, us)
				require.Equal(t, want, got, "call %d: %+v", n, c)
				require.Equal(t, passed, b.seen, "call %d: %+v", n, c)
				b.seen = nil
				decided[got]++
			}
			t.Log(decided)
			require.Greater(t, decided[codes.OK], 5)
			require.Greater(t, decided[codes.PermissionDenied], 5)
		})
	}
}

// calls is how many of them are compared: policies are slow under the race detector.
func calls() int {
	if race.Enabled {
		return 30
	}
	return 200
}

func TestRegistry_ANameIsFreeWhenItsRegistrationHasExpired(t *testing.T) {
	policies := load(t, ownerMasks)
	synctest.Test(t, func(t *testing.T) {
		us, one, other := newNeighbour(t, "us"), newNeighbour(t, "one"), newNeighbour(t, "other")
		b := &beyond{ttl: time.Minute}
		ours := onEndpoints(next.NewNetworkServiceEndpointRegistryServer(
			authz.NewNetworkServiceEndpointRegistryServer(policies), endpointsBeyond{beyond: b}))
		register := func(n *neighbour) codes.Code {
			return (&call{name: "name", owner: n, caller: n}).make(ours, b, us)
		}
		require.Equal(t, codes.OK, register(one))
		time.Sleep(50 * time.Second)
		require.Equal(t, codes.PermissionDenied, register(other))
		require.Equal(t, codes.OK, register(one), "refreshed")
		time.Sleep(50 * time.Second)
		require.Equal(t, codes.PermissionDenied, register(other), "and not expired")
		time.Sleep(10 * time.Second)
		require.Equal(t, codes.OK, register(other))
		require.Equal(t, codes.PermissionDenied, register(one))
	})
}

// anyone is a policy that lets everybody through.
type anyone struct{}

func (anyone) Name() string                     { return "anyone" }
func (anyone) Check(context.Context, any) error { return nil }

func TestRegistry_RemembersABoundedPartOfWhatAPeerRegisters(t *testing.T) {
	us, one := newNeighbour(t, "us"), newNeighbour(t, "one")
	b := new(beyond)
	s := next.NewNetworkServiceRegistryServer(
		authz.NewNetworkServiceRegistryServer([]authz.Policy{anyone{}}), servicesBeyond{beyond: b})
	b.call = &call{answered: us}
	ctx := peer.NewContext(grpcmetadata.PathWithContext(context.Background(), new(grpcmetadata.Path)), &peer.Peer{AuthInfo: one.tls()})
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := held()
	for n := range 30_000 {
		_, err := s.Register(ctx, &registry.NetworkService{Name: fmt.Sprintf("service-%d", n), PathIds: []string{fmt.Sprintf("spiffe://nsm.cluster1/%d", n)}})
		require.NoError(t, err)
		b.seen = b.seen[:0]
	}
	require.Less(t, held()-before, int64(6<<20))
	runtime.KeepAlive(s)
}

package authz

import (
	"context"
	"fmt"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/postpone"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"
)

type nsServer struct{ names }

// NewNetworkServiceRegistryServer is the element that authorizes what others register
// here. Services do not expire: what is remembered of them goes when they are
// unregistered, or when it is too much.
func NewNetworkServiceRegistryServer(policies []Policy) registry.NetworkServiceRegistryServer {
	return &nsServer{newNames(policies)}
}

func (s *nsServer) Register(ctx context.Context, ns *registry.NetworkService) (*registry.NetworkService, error) {
	return serve(ctx, &s.names, ns, next.NetworkServiceRegistryServer(ctx).Register)
}

func (s *nsServer) Find(query *registry.NetworkServiceQuery, found registry.NetworkServiceRegistry_FindServer) error {
	return next.NetworkServiceRegistryServer(found.Context()).Find(query, found)
}

func (s *nsServer) Unregister(ctx context.Context, ns *registry.NetworkService) (*emptypb.Empty, error) {
	return serveEnd(ctx, &s.names, ns, next.NetworkServiceRegistryServer(ctx).Unregister)
}

type nseServer struct{ names }

// NewNetworkServiceEndpointRegistryServer is NewNetworkServiceRegistryServer for
// endpoints, which are forgotten when their registration expires.
func NewNetworkServiceEndpointRegistryServer(policies []Policy) registry.NetworkServiceEndpointRegistryServer {
	return &nseServer{newNames(policies)}
}

func (s *nseServer) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	return serve(ctx, &s.names, nse, next.NetworkServiceEndpointRegistryServer(ctx).Register)
}

func (s *nseServer) Find(query *registry.NetworkServiceEndpointQuery, found registry.NetworkServiceEndpointRegistry_FindServer) error {
	return next.NetworkServiceEndpointRegistryServer(found.Context()).Find(query, found)
}

func (s *nseServer) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	return serveEnd(ctx, &s.names, nse, next.NetworkServiceEndpointRegistryServer(ctx).Unregister)
}

type nsClient struct{ names }

// NewNetworkServiceRegistryClient is the element that authorizes who answers what we
// register elsewhere. A first registration whose answer is refused is taken back.
func NewNetworkServiceRegistryClient(policies []Policy) registry.NetworkServiceRegistryClient {
	return &nsClient{newNames(policies)}
}

func (c *nsClient) Register(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*registry.NetworkService, error) {
	behind := next.NetworkServiceRegistryClient(ctx)
	return register(ctx, &c.names, ns, behind.Register, behind.Unregister, opts)
}

func (c *nsClient) Find(ctx context.Context, query *registry.NetworkServiceQuery, opts ...grpc.CallOption) (registry.NetworkServiceRegistry_FindClient, error) {
	return next.NetworkServiceRegistryClient(ctx).Find(ctx, query, opts...)
}

func (c *nsClient) Unregister(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	return unregister(ctx, &c.names, ns, next.NetworkServiceRegistryClient(ctx).Unregister, opts)
}

type nseClient struct{ names }

// NewNetworkServiceEndpointRegistryClient is NewNetworkServiceRegistryClient for
// endpoints, which are forgotten when their registration expires.
func NewNetworkServiceEndpointRegistryClient(policies []Policy) registry.NetworkServiceEndpointRegistryClient {
	return &nseClient{newNames(policies)}
}

func (c *nseClient) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*registry.NetworkServiceEndpoint, error) {
	behind := next.NetworkServiceEndpointRegistryClient(ctx)
	return register(ctx, &c.names, nse, behind.Register, behind.Unregister, opts)
}

func (c *nseClient) Find(ctx context.Context, query *registry.NetworkServiceEndpointQuery, opts ...grpc.CallOption) (registry.NetworkServiceEndpointRegistry_FindClient, error) {
	return next.NetworkServiceEndpointRegistryClient(ctx).Find(ctx, query, opts...)
}

func (c *nseClient) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	return unregister(ctx, &c.names, nse, next.NetworkServiceEndpointRegistryClient(ctx).Unregister, opts)
}

// resource is what is registered: a service or an endpoint.
type resource interface {
	GetName() string
	GetPathIds() []string
}

// serve lets a registration of somebody through, and keeps what has come of it.
func serve[R resource](ctx context.Context, n *names, r R, call func(context.Context, R) (R, error)) (refused R, _ error) {
	if err := n.checkCall(ctx, r.GetName()); err != nil {
		return refused, err
	}
	answer, err := call(ctx, r)
	if err != nil {
		return refused, err
	}
	n.keep(ctx, answer)
	return answer, nil
}

// serveEnd forgets the name, and lets its end through.
func serveEnd[R resource](ctx context.Context, n *names, r R, call func(context.Context, R) (*emptypb.Empty, error)) (*emptypb.Empty, error) {
	if err := n.checkCall(ctx, r.GetName()); err != nil {
		return nil, err
	}
	n.known.remove(r.GetName())
	return call(ctx, r)
}

type (
	registerFunc[R resource]   = func(context.Context, R, ...grpc.CallOption) (R, error)
	unregisterFunc[R resource] = func(context.Context, R, ...grpc.CallOption) (*emptypb.Empty, error)
)

// register makes a registration of ours, and takes it back if it is a first one whose
// answer is refused.
func register[R resource](
	ctx context.Context, n *names, r R, call registerFunc[R], takeBack unregisterFunc[R], opts []grpc.CallOption,
) (refused R, _ error) {
	if n.off() {
		return call(ctx, r, opts...)
	}
	answerer := new(peer.Peer)
	opts = append(opts[:len(opts):len(opts)], grpc.Peer(answerer))
	later := postpone.ContextWithValues(ctx)
	answer, err := call(ctx, r, opts...)
	if err != nil {
		return refused, err
	}
	known, err := n.checkAnswer(ctx, answerer, answer.GetName())
	switch {
	case err == nil:
		n.keep(ctx, answer)
		return answer, nil
	case !known:
		again, cancel := later()
		defer cancel()
		if _, back := takeBack(again, answer, opts...); back != nil {
			return refused, fmt.Errorf("%w; taking it back: %w", err, back)
		}
	}
	return refused, err
}

// unregister forgets the name when that has been answered by whom it may be.
func unregister[R resource](ctx context.Context, n *names, r R, call unregisterFunc[R], opts []grpc.CallOption) (*emptypb.Empty, error) {
	name, answerer := r.GetName(), new(peer.Peer)
	opts = append(opts[:len(opts):len(opts)], grpc.Peer(answerer))
	answer, err := call(ctx, r, opts...)
	if err != nil {
		return nil, err
	}
	if _, err := n.checkAnswer(ctx, answerer, name); err != nil {
		return nil, err
	}
	n.known.remove(name)
	return answer, nil
}

// expiryOf is when a registration ends, zero if it does not or its registry did not say.
func expiryOf(r resource) time.Time {
	if nse, ok := r.(*registry.NetworkServiceEndpoint); ok && nse.GetExpirationTime() != nil {
		return nse.GetExpirationTime().AsTime()
	}
	return time.Time{}
}

// checkCall asks about a call of somebody.
func (n *names) checkCall(ctx context.Context, name string) error {
	if n.off() {
		return nil
	}
	return n.check(ctx, name, upToUs(grpcmetadata.PathFromContext(ctx)))
}

// checkAnswer asks about the answer to a call of ours, and tells whether the name was
// known before.
func (n *names) checkAnswer(ctx context.Context, answerer *peer.Peer, name string) (known bool, _ error) {
	if n.off() {
		return true, nil
	}
	if *answerer != (peer.Peer{}) {
		ctx = peer.NewContext(ctx, answerer)
	}
	known = len(n.known.of(name)) > 0
	return known, n.check(ctx, name, grpcmetadata.PathFromContext(ctx))
}

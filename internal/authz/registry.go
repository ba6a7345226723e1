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
	if err := s.checkCall(ctx, ns.GetName()); err != nil {
		return nil, err
	}
	answer, err := next.NetworkServiceRegistryServer(ctx).Register(ctx, ns)
	if err != nil {
		return nil, err
	}
	s.keep(peerOf(ctx), answer.GetName(), answer.GetPathIds(), time.Time{})
	return answer, nil
}

func (s *nsServer) Find(query *registry.NetworkServiceQuery, found registry.NetworkServiceRegistry_FindServer) error {
	return next.NetworkServiceRegistryServer(found.Context()).Find(query, found)
}

func (s *nsServer) Unregister(ctx context.Context, ns *registry.NetworkService) (*emptypb.Empty, error) {
	if err := s.checkCall(ctx, ns.GetName()); err != nil {
		return nil, err
	}
	s.known.remove(ns.GetName())
	return next.NetworkServiceRegistryServer(ctx).Unregister(ctx, ns)
}

type nseServer struct{ names }

// NewNetworkServiceEndpointRegistryServer is NewNetworkServiceRegistryServer for
// endpoints, which are forgotten when their registration expires.
func NewNetworkServiceEndpointRegistryServer(policies []Policy) registry.NetworkServiceEndpointRegistryServer {
	return &nseServer{newNames(policies)}
}

func (s *nseServer) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	if err := s.checkCall(ctx, nse.GetName()); err != nil {
		return nil, err
	}
	answer, err := next.NetworkServiceEndpointRegistryServer(ctx).Register(ctx, nse)
	if err != nil {
		return nil, err
	}
	s.keep(peerOf(ctx), answer.GetName(), answer.GetPathIds(), expiryOf(answer))
	return answer, nil
}

func (s *nseServer) Find(query *registry.NetworkServiceEndpointQuery, found registry.NetworkServiceEndpointRegistry_FindServer) error {
	return next.NetworkServiceEndpointRegistryServer(found.Context()).Find(query, found)
}

func (s *nseServer) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	if err := s.checkCall(ctx, nse.GetName()); err != nil {
		return nil, err
	}
	s.known.remove(nse.GetName())
	return next.NetworkServiceEndpointRegistryServer(ctx).Unregister(ctx, nse)
}

type nsClient struct{ names }

// NewNetworkServiceRegistryClient is the element that authorizes who answers what we
// register elsewhere. A first registration whose answer is refused is taken back.
func NewNetworkServiceRegistryClient(policies []Policy) registry.NetworkServiceRegistryClient {
	return &nsClient{newNames(policies)}
}

func (c *nsClient) Register(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*registry.NetworkService, error) {
	if c.off() {
		return next.NetworkServiceRegistryClient(ctx).Register(ctx, ns, opts...)
	}
	answerer := new(peer.Peer)
	opts = append(opts[:len(opts):len(opts)], grpc.Peer(answerer))
	later := postpone.ContextWithValues(ctx)
	answer, err := next.NetworkServiceRegistryClient(ctx).Register(ctx, ns, opts...)
	if err != nil {
		return nil, err
	}
	known, err := c.checkAnswer(ctx, answerer, answer.GetName())
	switch {
	case err == nil:
		c.keep(peerOf(ctx), answer.GetName(), answer.GetPathIds(), time.Time{})
		return answer, nil
	case !known:
		again, cancel := later()
		defer cancel()
		if _, back := next.NetworkServiceRegistryClient(ctx).Unregister(again, answer, opts...); back != nil {
			return nil, fmt.Errorf("%w; taking it back: %w", err, back)
		}
	}
	return nil, err
}

func (c *nsClient) Find(ctx context.Context, query *registry.NetworkServiceQuery, opts ...grpc.CallOption) (registry.NetworkServiceRegistry_FindClient, error) {
	return next.NetworkServiceRegistryClient(ctx).Find(ctx, query, opts...)
}

func (c *nsClient) Unregister(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	name, answerer := ns.GetName(), new(peer.Peer)
	opts = append(opts[:len(opts):len(opts)], grpc.Peer(answerer))
	answer, err := next.NetworkServiceRegistryClient(ctx).Unregister(ctx, ns, opts...)
	if err != nil {
		return nil, err
	}
	if _, err := c.checkAnswer(ctx, answerer, name); err != nil {
		return nil, err
	}
	c.known.remove(name)
	return answer, nil
}

type nseClient struct{ names }

// NewNetworkServiceEndpointRegistryClient is NewNetworkServiceRegistryClient for
// endpoints, which are forgotten when their registration expires.
func NewNetworkServiceEndpointRegistryClient(policies []Policy) registry.NetworkServiceEndpointRegistryClient {
	return &nseClient{newNames(policies)}
}

func (c *nseClient) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*registry.NetworkServiceEndpoint, error) {
	if c.off() {
		return next.NetworkServiceEndpointRegistryClient(ctx).Register(ctx, nse, opts...)
	}
	answerer := new(peer.Peer)
	opts = append(opts[:len(opts):len(opts)], grpc.Peer(answerer))
	later := postpone.ContextWithValues(ctx)
	answer, err := next.NetworkServiceEndpointRegistryClient(ctx).Register(ctx, nse, opts...)
	if err != nil {
		return nil, err
	}
	known, err := c.checkAnswer(ctx, answerer, answer.GetName())
	switch {
	case err == nil:
		c.keep(peerOf(ctx), answer.GetName(), answer.GetPathIds(), expiryOf(answer))
		return answer, nil
	case !known:
		again, cancel := later()
		defer cancel()
		if _, back := next.NetworkServiceEndpointRegistryClient(ctx).Unregister(again, answer, opts...); back != nil {
			return nil, fmt.Errorf("%w; taking it back: %w", err, back)
		}
	}
	return nil, err
}

func (c *nseClient) Find(ctx context.Context, query *registry.NetworkServiceEndpointQuery, opts ...grpc.CallOption) (registry.NetworkServiceEndpointRegistry_FindClient, error) {
	return next.NetworkServiceEndpointRegistryClient(ctx).Find(ctx, query, opts...)
}

func (c *nseClient) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	name, answerer := nse.GetName(), new(peer.Peer)
	opts = append(opts[:len(opts):len(opts)], grpc.Peer(answerer))
	answer, err := next.NetworkServiceEndpointRegistryClient(ctx).Unregister(ctx, nse, opts...)
	if err != nil {
		return nil, err
	}
	if _, err := c.checkAnswer(ctx, answerer, name); err != nil {
		return nil, err
	}
	c.known.remove(name)
	return answer, nil
}

// expiryOf is when a registration ends, zero if its registry did not say.
func expiryOf(nse *registry.NetworkServiceEndpoint) time.Time {
	if expires := nse.GetExpirationTime(); expires != nil {
		return expires.AsTime()
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

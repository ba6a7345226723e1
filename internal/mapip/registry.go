package mapip

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"google.golang.org/protobuf/types/known/emptypb"
)

type registryServer struct{ addresses *Map }

// NewNetworkServiceEndpointRegistryServer is the element that exchanges the host
// of endpoint URLs. A registration, its refreshes, Find and Unregister are all
// translated alike.
func NewNetworkServiceEndpointRegistryServer(addresses *Map) registry.NetworkServiceEndpointRegistryServer {
	return &registryServer{addresses: addresses}
}

func (s *registryServer) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	s.translate(nse)
	return next.NetworkServiceEndpointRegistryServer(ctx).Register(ctx, nse)
}

func (s *registryServer) Find(query *registry.NetworkServiceEndpointQuery, found registry.NetworkServiceEndpointRegistry_FindServer) error {
	s.translate(query.GetNetworkServiceEndpoint())
	return next.NetworkServiceEndpointRegistryServer(found.Context()).Find(query, &findServer{
		NetworkServiceEndpointRegistry_FindServer: found, server: s,
	})
}

func (s *registryServer) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	s.translate(nse)
	return next.NetworkServiceEndpointRegistryServer(ctx).Unregister(ctx, nse)
}

// translate leaves alone what has no host and port, a unix socket among others.
func (s *registryServer) translate(nse *registry.NetworkServiceEndpoint) {
	if nse.GetUrl() == "" {
		return
	}
	u, err := url.Parse(nse.GetUrl())
	if err != nil {
		return
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return
	}
	if external := s.addresses.External(host); external != host {
		u.Host = net.JoinHostPort(external, port)
		nse.Url = u.String()
	}
}

type findServer struct {
	registry.NetworkServiceEndpointRegistry_FindServer
	server *registryServer
}

func (f *findServer) Send(response *registry.NetworkServiceEndpointResponse) error {
	f.server.translate(response.GetNetworkServiceEndpoint())
	if err := f.NetworkServiceEndpointRegistry_FindServer.Send(response); err != nil {
		return fmt.Errorf("mapip: find: %w", err)
	}
	return nil
}

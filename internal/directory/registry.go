package directory

import (
	"context"
	"fmt"
	"net/url"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/protobuf/types/known/emptypb"
)

type registryServer struct{ directory *Directory }

// NewNetworkServiceEndpointRegistryServer is the element that learns where
// endpoints live and puts this proxy in their place: what an endpoint of this
// domain registers elsewhere, and what is found elsewhere, is reached through
// the proxy.
func NewNetworkServiceEndpointRegistryServer(d *Directory) registry.NetworkServiceEndpointRegistryServer {
	return &registryServer{directory: d}
}

func (s *registryServer) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	original := nse.GetUrl()
	u, err := url.Parse(original)
	if err != nil {
		return nil, fmt.Errorf("directory: endpoint URL: %w", err)
	}
	nse.Url = s.directory.self
	registered, err := next.NetworkServiceEndpointRegistryServer(ctx).Register(ctx, nse)
	if err != nil {
		return nil, err
	}
	s.directory.learn(s.directory.registered, registered.GetName(), u)
	registered.Url = original
	return registered, nil
}

func (s *registryServer) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	s.directory.forget(s.directory.registered, nse.GetName())
	original := nse.GetUrl()
	nse.Url = s.directory.self
	defer func() { nse.Url = original }()
	return next.NetworkServiceEndpointRegistryServer(ctx).Unregister(ctx, nse)
}

func (s *registryServer) Find(query *registry.NetworkServiceEndpointQuery, found registry.NetworkServiceEndpointRegistry_FindServer) error {
	return next.NetworkServiceEndpointRegistryServer(found.Context()).Find(query, &findServer{
		NetworkServiceEndpointRegistry_FindServer: found, directory: s.directory,
	})
}

type findServer struct {
	registry.NetworkServiceEndpointRegistry_FindServer
	directory *Directory
}

func (f *findServer) Send(response *registry.NetworkServiceEndpointResponse) error {
	nse := response.GetNetworkServiceEndpoint()
	if nse == nil {
		return nil
	}
	u, err := url.Parse(nse.GetUrl())
	switch {
	case response.GetDeleted():
		f.directory.forget(f.directory.found, nse.GetName())
	case err != nil:
		// One endpoint that cannot be reached must not end the search for others.
		log.FromContext(f.Context()).Warnf("directory: endpoint %s left out: %v", nse.GetName(), err)
		return nil
	default:
		f.directory.learn(f.directory.found, nse.GetName(), u)
	}
	nse.Url = f.directory.self
	if err := f.NetworkServiceEndpointRegistry_FindServer.Send(response); err != nil {
		return fmt.Errorf("directory: find: %w", err)
	}
	return nil
}

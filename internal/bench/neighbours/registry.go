package neighbours

import (
	"sync/atomic"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"google.golang.org/grpc"
)

// register is a registry that knows one endpoint and counts who asks.
type register struct {
	registry.UnimplementedNetworkServiceEndpointRegistryServer
	name, url string
	finds     *atomic.Int64
}

func (r *register) register(s *grpc.Server) {
	registry.RegisterNetworkServiceEndpointRegistryServer(s, r)
}

// Find implements registry.NetworkServiceEndpointRegistryServer.
func (r *register) Find(query *registry.NetworkServiceEndpointQuery, stream registry.NetworkServiceEndpointRegistry_FindServer) error {
	r.finds.Add(1)
	if r.name == "" || query.GetNetworkServiceEndpoint().GetName() != r.name {
		return nil
	}
	return stream.Send(&registry.NetworkServiceEndpointResponse{NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{
		Name: r.name, Url: r.url, NetworkServiceNames: []string{service},
	}})
}

package nsmgrproxy_test

import (
	"context"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// fakeRegistry answers Find from a map of names and counts how often it did.
type fakeRegistry struct {
	registry.UnimplementedNetworkServiceEndpointRegistryServer
	mu    sync.Mutex
	urls  map[string]string
	finds int
}

func newFakeRegistry() *fakeRegistry { return &fakeRegistry{urls: make(map[string]string)} }

func (r *fakeRegistry) register(s *grpc.Server) {
	registry.RegisterNetworkServiceEndpointRegistryServer(s, r)
}

func (r *fakeRegistry) set(name, u string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.urls[name] = u
}

func (r *fakeRegistry) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.finds
}

func (r *fakeRegistry) Find(query *registry.NetworkServiceEndpointQuery, stream registry.NetworkServiceEndpointRegistry_FindServer) error {
	r.mu.Lock()
	r.finds++
	name := query.GetNetworkServiceEndpoint().GetName()
	u, ok := r.urls[name]
	r.mu.Unlock()
	if !ok {
		return nil
	}
	return stream.Send(&registry.NetworkServiceEndpointResponse{
		NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name, Url: u},
	})
}

func (r *fakeRegistry) Register(_ context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	r.set(nse.GetName(), nse.GetUrl())
	return nse, nil
}

func (r *fakeRegistry) Unregister(_ context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.urls, nse.GetName())
	return new(emptypb.Empty), nil
}

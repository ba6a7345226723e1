package nsmgrproxy_test

import (
	"context"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
)

// fakeRegistry answers Find from a map of names and counts how often it did.
type fakeRegistry struct {
	registry.UnimplementedNetworkServiceEndpointRegistryServer
	mu    sync.Mutex
	urls  map[string]string
	finds int
	path  string // what Register and Unregister answer in the header, empty for none
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

func (r *fakeRegistry) answerPath(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.path = path
}

func (r *fakeRegistry) sendPath(ctx context.Context) error {
	r.mu.Lock()
	path := r.path
	r.mu.Unlock()
	if path == "" {
		return nil
	}
	return grpc.SendHeader(ctx, metadata.Pairs("path", path))
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

func (r *fakeRegistry) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	r.set(nse.GetName(), nse.GetUrl())
	return nse, r.sendPath(ctx)
}

func (r *fakeRegistry) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	r.mu.Lock()
	delete(r.urls, nse.GetName())
	r.mu.Unlock()
	return new(emptypb.Empty), r.sendPath(ctx)
}

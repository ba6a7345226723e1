package nsmgrproxy_test

import (
	"context"
	"net/url"
	"sync"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

func TestServicesAreThoseOfTheAPI(t *testing.T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	u := &url.URL{Scheme: "tcp", Host: registryAddr}
	s := nsmgrproxy.NewServer(ctx, u, u, testToken, nsmgrproxy.WithMapIPFilePath(""),
		nsmgrproxy.WithWaitGroup(&wg))
	ours, generated := grpc.NewServer(), grpc.NewServer()
	s.Register(ours)
	networkservice.RegisterNetworkServiceServer(generated, s)
	networkservice.RegisterMonitorConnectionServer(generated, s)
	registry.RegisterNetworkServiceRegistryServer(generated, s.NetworkServiceRegistryServer())
	registry.RegisterNetworkServiceEndpointRegistryServer(generated, s.NetworkServiceEndpointRegistryServer())
	grpc_health_v1.RegisterHealthServer(generated, health.NewServer())
	got, want := ours.GetServiceInfo(), generated.GetServiceInfo()
	require.Len(t, got, len(want))
	for name, service := range want {
		require.Equal(t, methods(service), methods(got[name]), name)
	}
}

// methods tells which methods answer with a stream. No message comes in one.
func methods(service grpc.ServiceInfo) map[string]bool {
	all := make(map[string]bool)
	for _, m := range service.Methods {
		all[m.Name] = m.IsServerStream
	}
	return all
}

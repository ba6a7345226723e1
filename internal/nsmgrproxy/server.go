// Package nsmgrproxy is the chain of the process: every element a message meets,
// in order.
//
// It has the signature of the SDK's chain of the same name, so that whatever
// builds domains around that one can build them around this one. Five of the
// SDK's elements are replaced, because what they do is what this proxy exists to
// do otherwise: begin, metadata and timeout by a leg that can be adopted,
// re-requested and closed on its own hop; interdomainbypass and discover by a
// directory that follows addresses; dial and the client chain by hops that are
// kept; monitor by the event contract; swapip by a map that never writes an empty
// address. Registrations are put in order by an element that keeps none of them,
// in the place of the registry's begin. The rest is the SDK's own. The elements
// are joined without the SDK's tracing around each of them, which logs a failed
// call once per element and try; the guard logs it once.
//
// Everything that runs in the background ends with the context of NewServer and
// is counted in the wait group of WithWaitGroup. Monitor streams end with
// Unavailable then, and nothing is closed upstream: the next process takes the
// connections over in place.
package nsmgrproxy

import (
	"context"
	"net/url"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/clusterinfo"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/updatepath"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/updatetoken"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	registryserver "github.com/networkservicemesh/sdk/pkg/registry"
	registryclusterinfo "github.com/networkservicemesh/sdk/pkg/registry/common/clusterinfo"
	registryconnect "github.com/networkservicemesh/sdk/pkg/registry/common/connect"
	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	registryupdatepath "github.com/networkservicemesh/sdk/pkg/registry/common/updatepath"
	registrynext "github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	monitornext "github.com/networkservicemesh/sdk/pkg/tools/monitorconnection/next"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/directory"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/mapip"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/monitor"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/serial"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/warm"
)

// NewServer makes the proxy. registryURL leads to the registry of this domain,
// registryProxyURL to the one that knows the other domains. It lives as long as
// ctx.
func NewServer(ctx context.Context, registryURL, registryProxyURL *url.URL, tokenGenerator token.GeneratorFunc, opts ...Option) nsmgr.Nsmgr {
	o := newOptions(opts)
	pool, legs, table := hop.NewPool(ctx, o.wg, o.hop()), leg.New(ctx, o.wg).In(o.room), monitor.NewTable(ctx, o.wg)
	local, remote := pool.Client(registryURL), pool.Client(registryProxyURL)
	places := directory.New(o.listenOn, toRegistry(local), toRegistry(remote))
	addresses, logger := mapip.Watch(ctx, o.wg, o.mapIPFilePath), guard.NewLog(log.FromContext(ctx))
	return &server{
		legs: legs, table: table, pool: pool, addresses: addresses, work: warm.New(ctx, o.wg),
		NetworkServiceServer: next.NewNetworkServiceServer(
			guard.NewServer(logger),
			hop.NewSelfServer(pool),
			guard.NewLoopServer(o.name),
			updatepath.NewServer(o.name),
			o.gate,
			leg.NewServer(legs),
			updatetoken.NewServer(tokenGenerator),
			leg.NewAliveServer(),
			o.authorizeServer,
			monitor.NewServer(table, o.grace, places.Moved),
			directory.NewServer(places),
			mapip.NewServer(addresses),
			clusterinfo.NewServer(),
			hop.NewServer(pool),
		),
		MonitorConnectionServer: monitornext.NewMonitorConnectionServer(
			guard.NewMonitorConnectionServer(logger),
			o.authorizeMonitorServer,
			table,
		),
		Registry: registryserver.NewServer(
			registrynext.NewNetworkServiceRegistryServer(
				guard.NewNetworkServiceRegistryServer(logger),
				grpcmetadata.NewNetworkServiceRegistryServer(),
				registryupdatepath.NewNetworkServiceRegistryServer(tokenGenerator),
				o.authorizeNSServer,
				registryconnect.NewNetworkServiceRegistryServer(registrynext.NewNetworkServiceRegistryClient(
					o.authorizeNSClient,
					hop.NewNetworkServiceRegistryClient(remote),
					grpcmetadata.NewNetworkServiceRegistryClient(),
					guard.NewNetworkServiceRegistryClient(),
					registry.NewNetworkServiceRegistryClient(remote),
				)),
			),
			registrynext.NewNetworkServiceEndpointRegistryServer(
				guard.NewNetworkServiceEndpointRegistryServer(logger),
				grpcmetadata.NewNetworkServiceEndpointRegistryServer(),
				registryupdatepath.NewNetworkServiceEndpointRegistryServer(tokenGenerator),
				o.authorizeNSEServer,
				serial.NewNetworkServiceEndpointRegistryServer(),
				directory.NewNetworkServiceEndpointRegistryServer(places),
				mapip.NewNetworkServiceEndpointRegistryServer(addresses),
				registryclusterinfo.NewNetworkServiceEndpointRegistryServer(),
				registryconnect.NewNetworkServiceEndpointRegistryServer(registrynext.NewNetworkServiceEndpointRegistryClient(
					o.authorizeNSEClient,
					hop.NewNetworkServiceEndpointRegistryClient(remote),
					grpcmetadata.NewNetworkServiceEndpointRegistryClient(),
					toRegistry(remote),
				)),
			),
		),
	}
}

// toRegistry leads to the endpoint registry behind a connection.
func toRegistry(cc grpc.ClientConnInterface) registry.NetworkServiceEndpointRegistryClient {
	return registrynext.NewNetworkServiceEndpointRegistryClient(
		guard.NewNetworkServiceEndpointRegistryClient(),
		registry.NewNetworkServiceEndpointRegistryClient(cc),
	)
}

// grace is the grace of the leg that a Request is about.
func (o *options) grace(ctx context.Context) time.Duration {
	if directory.FromLeg(ctx).Way == directory.Outbound {
		return o.monitorGrace
	}
	return o.monitorLocalGrace
}

type server struct {
	// What is held of the connections, to be counted.
	legs      *leg.Table
	table     *monitor.Table
	pool      *hop.Pool
	addresses *mapip.Map
	// work serves the calls.
	work *warm.Pool

	networkservice.NetworkServiceServer
	networkservice.MonitorConnectionServer
	registryserver.Registry
}

var _ nsmgr.Nsmgr = (*server)(nil)

// Register adds the services and their health, under the names of the stock
// proxy, to a gRPC server.
func (s *server) Register(g *grpc.Server) { registerServices(g, s, s.work) }

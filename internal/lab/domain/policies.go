package domain

import (
	"github.com/edwarnicke/genericsync"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/authorize"
	registryauthorize "github.com/networkservicemesh/sdk/pkg/registry/common/authorize"
	authmonitor "github.com/networkservicemesh/sdk/pkg/tools/monitorconnection/authorize"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The policies are those that the stock commands ship with: every Request and every
// registration is judged by the part that gets it, and what it answers by the part
// that gets that.
var (
	serverMasks = []string{"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/server/.*.rego"}
	clientMasks = []string{"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/client/.*.rego"}
)

func nsServerPolicy() registry.NetworkServiceRegistryServer {
	return registryauthorize.NewNetworkServiceRegistryServer(registryauthorize.WithPolicies(serverMasks...))
}

func nseServerPolicy() registry.NetworkServiceEndpointRegistryServer {
	return registryauthorize.NewNetworkServiceEndpointRegistryServer(registryauthorize.WithPolicies(serverMasks...))
}

func nsClientPolicy() registry.NetworkServiceRegistryClient {
	return registryauthorize.NewNetworkServiceRegistryClient(registryauthorize.WithPolicies(clientMasks...))
}

func nseClientPolicy() registry.NetworkServiceEndpointRegistryClient {
	return registryauthorize.NewNetworkServiceEndpointRegistryClient(registryauthorize.WithPolicies(clientMasks...))
}

// nsmgrPolicies are an nsmgr's: those of a registry on its registry, and the SDK's
// own for Requests.
func nsmgrPolicies() []nsmgr.Option {
	var owners genericsync.Map[spiffeid.ID, *genericsync.Map[string, struct{}]]
	return []nsmgr.Option{
		nsmgr.WithAuthorizeServer(authorize.NewServer(authorize.WithSpiffeIDConnectionMap(&owners))),
		nsmgr.WithAuthorizeMonitorConnectionServer(authmonitor.NewMonitorConnectionServer(authmonitor.WithSpiffeIDConnectionMap(&owners))),
		nsmgr.WithAuthorizeNSRegistryServer(nsServerPolicy()),
		nsmgr.WithAuthorizeNSERegistryServer(nseServerPolicy()),
		nsmgr.WithAuthorizeNSRegistryClient(nsClientPolicy()),
		nsmgr.WithAuthorizeNSERegistryClient(nseClientPolicy()),
	}
}

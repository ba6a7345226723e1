package app

import (
	"context"
	"fmt"

	"github.com/networkservicemesh/sdk/pkg/tools/log"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/authz"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/config"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// newAuthorization makes the elements that authorize Requests, subscriptions and
// registry calls, those of others to us and ours to others. It fails if a policy
// cannot be read.
// The policies on Requests are for the gate, which needs our tokens as well.
func newAuthorization(ctx context.Context, c *config.Config) (_ []nsmgrproxy.Option, gate []authz.Policy, err error) {
	var loaded [4][]authz.Policy
	for i, masks := range [][]string{c.RequestPolicies, c.MonitorPolicies, c.RegistryServerPolicies, c.RegistryClientPolicies} {
		if loaded[i], err = loadPolicies(ctx, masks); err != nil {
			return nil, nil, err
		}
	}
	gate, subscriptions, server, client := loaded[0], loaded[1], loaded[2], loaded[3]
	owners := authz.NewOwners(subscriptions)
	return []nsmgrproxy.Option{
		nsmgrproxy.WithAuthorizeServer(authz.NewServer(owners)),
		nsmgrproxy.WithAuthorizeMonitorConnectionServer(authz.NewMonitorConnectionServer(owners)),
		nsmgrproxy.WithAuthorizeNSRegistryServer(authz.NewNetworkServiceRegistryServer(server)),
		nsmgrproxy.WithAuthorizeNSERegistryServer(authz.NewNetworkServiceEndpointRegistryServer(server)),
		nsmgrproxy.WithAuthorizeNSRegistryClient(authz.NewNetworkServiceRegistryClient(client)),
		nsmgrproxy.WithAuthorizeNSERegistryClient(authz.NewNetworkServiceEndpointRegistryClient(client)),
	}, gate, nil
}

// loadPolicies warns of a mask without a file, which is no policy at all.
func loadPolicies(ctx context.Context, masks []string) ([]authz.Policy, error) {
	var policies []authz.Policy
	for _, mask := range masks {
		found, err := authz.Load([]string{mask})
		if err != nil {
			return nil, fmt.Errorf("app: %w", err)
		}
		if len(found) == 0 {
			log.FromContext(ctx).Warnf("app: no policy file matches %q, so it authorizes nothing and forbids nothing", mask)
		}
		policies = append(policies, found...)
	}
	return policies, nil
}

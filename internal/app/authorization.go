package app

import (
	"context"
	"fmt"

	"github.com/networkservicemesh/sdk/pkg/registry/common/authorize"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/opa"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/authz"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/config"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// newAuthorization makes the elements that authorize Requests, subscriptions and
// registry calls, those of others to us and ours to others. It fails if a policy
// cannot be read.
// The policies on Requests are for the gate, which needs our tokens as well.
func newAuthorization(ctx context.Context, c *config.Config) (_ []nsmgrproxy.Option, gate []authz.Policy, _ error) {
	for _, masks := range [][]string{c.RegistryServerPolicies, c.RegistryClientPolicies, c.RequestPolicies, c.MonitorPolicies} {
		if err := checkPolicies(ctx, masks); err != nil {
			return nil, nil, err
		}
	}
	gate, err := authz.Load(c.RequestPolicies)
	if err != nil {
		return nil, nil, err
	}
	subscriptions, err := authz.Load(c.MonitorPolicies)
	if err != nil {
		return nil, nil, err
	}
	owners := authz.NewOwners(subscriptions)
	server := authorize.WithPolicies(c.RegistryServerPolicies...)
	client := authorize.WithPolicies(c.RegistryClientPolicies...)
	return []nsmgrproxy.Option{
		nsmgrproxy.WithAuthorizeServer(authz.NewServer(owners)),
		nsmgrproxy.WithAuthorizeMonitorConnectionServer(authz.NewMonitorConnectionServer(owners)),
		nsmgrproxy.WithAuthorizeNSRegistryServer(authorize.NewNetworkServiceRegistryServer(server)),
		nsmgrproxy.WithAuthorizeNSERegistryServer(authorize.NewNetworkServiceEndpointRegistryServer(server)),
		nsmgrproxy.WithAuthorizeNSRegistryClient(authorize.NewNetworkServiceRegistryClient(client)),
		nsmgrproxy.WithAuthorizeNSERegistryClient(authorize.NewNetworkServiceEndpointRegistryClient(client)),
	}, gate, nil
}

// checkPolicies reads the policies once before WithPolicies does, which panics
// when it cannot, and takes a mask without a file for no policy at all.
func checkPolicies(ctx context.Context, masks []string) error {
	for _, mask := range masks {
		policies, err := opa.PoliciesByFileMask(mask)
		if err != nil {
			return fmt.Errorf("app: policies %q: %w", mask, err)
		}
		if len(policies) == 0 {
			log.FromContext(ctx).Warnf("app: no policy file matches %q, so it authorizes nothing and forbids nothing", mask)
		}
	}
	return nil
}

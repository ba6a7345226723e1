package domain

import (
	"context"
	"fmt"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/kernel"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/vxlan"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/client"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/endpoint"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/authorize"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/connect"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/discover"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/mechanisms"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/mechanisms/vxlan/vni"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/mechanismtranslation"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/null"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/roundrobin"
	registryclient "github.com/networkservicemesh/sdk/pkg/registry/chains/client"
	"github.com/networkservicemesh/sdk/pkg/registry/common/retry"
)

// Direction says which way a forwarder sends what it gets.
type Direction int

const (
	// Outwards is a forwarder between a local client and another domain.
	Outwards Direction = iota
	// Inwards is a forwarder between another domain and a local endpoint.
	Inwards
)

// StartNode starts nsmgr and forwarder. A real forwarder serves both
// directions and tells them apart by the scheme of the next URL; everything
// here is tcp, so it is told.
func (d *Domain) StartNode(ctx context.Context, direction Direction) error {
	if err := d.startNSMgr(); err != nil {
		return fmt.Errorf("domain %s: nsmgr: %w", d.Name(), err)
	}
	if err := d.startForwarder(ctx, direction); err != nil {
		return fmt.Errorf("domain %s: forwarder: %w", d.Name(), err)
	}
	return nil
}

func (d *Domain) startNSMgr() error {
	id, err := d.Identity("nsmgr")
	if err != nil {
		return err
	}
	listener, at, err := listen(d.Inside())
	if err != nil {
		return err
	}
	d.NSMgrURL = at
	public := *at
	if d.Front != nil {
		if public.Host, err = d.Front(at.Host); err != nil {
			return err
		}
	}
	server := nsmgr.NewServer(d.ctx, id.Tokens, append(nsmgrPolicies(),
		nsmgr.WithName("nsmgr-"+d.Name()),
		nsmgr.WithURL(public.String()),
		nsmgr.WithRegistry(d.RegistryURL),
		nsmgr.WithDialTimeout(dialTimeout),
		nsmgr.WithDialOptions(id.DialOptions()...))...)
	_, err = d.serve(listener, id, server.Register)
	return err
}

func (d *Domain) startForwarder(ctx context.Context, direction Direction) error {
	id, err := d.Identity("forwarder")
	if err != nil {
		return err
	}
	listener, at, err := listen(d.Inside())
	if err != nil {
		return err
	}
	// One mechanism on each side: kernel where the workload is, VXLAN where
	// the other domain is, for its addresses are what a proxy translates.
	served := mechanisms.NewServer(map[string]networkservice.NetworkServiceServer{kernel.MECHANISM: null.NewServer()})
	offered := newOffer(vxlan.MECHANISM)
	if direction == Inwards {
		served = mechanisms.NewServer(map[string]networkservice.NetworkServiceServer{vxlan.MECHANISM: vni.NewServer(d.Inside())})
		offered = newOffer(kernel.MECHANISM)
	}
	name := "forwarder-" + d.Name()
	server := endpoint.NewServer(d.ctx, id.Tokens,
		endpoint.WithName(name),
		endpoint.WithAuthorizeServer(authorize.NewServer()),
		endpoint.WithAdditionalFunctionality(
			discover.NewServer(d.serviceRegistry(id), d.endpointRegistry(id)),
			roundrobin.NewServer(),
			served,
			&tunnelServer{domain: d},
			connect.NewServer(client.NewClient(d.ctx,
				client.WithName(name),
				client.WithAdditionalFunctionality(
					mechanismtranslation.NewClient(),
					offered,
					vni.NewClient(d.Inside()),
					&tunnelClient{domain: d},
				),
				client.WithDialOptions(id.DialOptions()...),
				client.WithDialTimeout(dialTimeout),
				client.WithoutRefresh(),
			)),
		))
	if _, err = d.serve(listener, id, server.Register); err != nil {
		return err
	}
	_, err = d.endpointRegistry(id).Register(ctx, &registry.NetworkServiceEndpoint{
		Name:                name,
		Url:                 at.String(),
		NetworkServiceNames: []string{"forwarder"},
		NetworkServiceLabels: map[string]*registry.NetworkServiceLabels{
			"forwarder": {Labels: map[string]string{"p2p": "true"}},
		},
	})
	return err
}

func (d *Domain) serviceRegistry(id *Identity) registry.NetworkServiceRegistryClient {
	return registryclient.NewNetworkServiceRegistryClient(d.ctx,
		registryclient.WithClientURL(d.NSMgrURL),
		registryclient.WithAuthorizeNSRegistryClient(nsClientPolicy()),
		registryclient.WithNSRetryClient(retry.NewNetworkServiceRegistryClient(d.ctx, retry.WithTryTimeout(d.TryTime))),
		registryclient.WithDialTimeout(dialTimeout),
		registryclient.WithDialOptions(id.DialOptions()...))
}

func (d *Domain) endpointRegistry(id *Identity) registry.NetworkServiceEndpointRegistryClient {
	return d.endpointRegistryUntil(d.ctx, id)
}

// endpointRegistryUntil keeps what is registered through it alive until ctx ends.
func (d *Domain) endpointRegistryUntil(ctx context.Context, id *Identity) registry.NetworkServiceEndpointRegistryClient {
	return registryclient.NewNetworkServiceEndpointRegistryClient(ctx,
		registryclient.WithClientURL(d.NSMgrURL),
		registryclient.WithAuthorizeNSERegistryClient(nseClientPolicy()),
		registryclient.WithNSERetryClient(retry.NewNetworkServiceEndpointRegistryClient(ctx, retry.WithTryTimeout(d.TryTime))),
		registryclient.WithDialTimeout(dialTimeout),
		registryclient.WithDialOptions(id.DialOptions()...))
}

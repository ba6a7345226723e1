package neighbours

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/chains/client"
)

// findTime bounds a look-up through the proxy.
const findTime = 10 * time.Second

// Find looks the endpoint up through the proxy, as an nsmgr does on behalf of a
// client that asks for it.
func (n *Neighbours) Find(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	found, err := client.NewNetworkServiceEndpointRegistryClient(ctx,
		client.WithClientURL(&url.URL{Scheme: "tcp", Host: n.Proxy}),
		client.WithDialTimeout(findTime),
		client.WithDialOptions(n.Downstream.DialOptions(new(atomic.Int64))...),
	).Find(ctx, &registry.NetworkServiceEndpointQuery{NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: Endpoint}})
	if err != nil {
		return fmt.Errorf("neighbours: find %s: %w", Endpoint, err)
	}
	if list := registry.ReadNetworkServiceEndpointList(found); len(list) != 1 {
		return fmt.Errorf("neighbours: find %s: %d answers", Endpoint, len(list))
	}
	return nil
}

package domain

import (
	"context"
	"net/url"
	"time"

	"github.com/networkservicemesh/sdk-k8s/pkg/registry/chains/registryk8s"
	"github.com/networkservicemesh/sdk-k8s/pkg/tools/k8s/client/clientset/versioned/fake"
	"github.com/networkservicemesh/sdk/pkg/registry"
)

// registrationLifetime is that of registrations whose token does not end
// sooner; a minute is what the registries ship with.
const registrationLifetime = time.Minute

// newKubernetesRegistry is registry-k8s over an API server that is a map.
func newKubernetesRegistry(ctx context.Context, proxyURL *url.URL, id *Identity) registry.Registry {
	return registryk8s.NewServer(&registryk8s.Config{
		Namespace:        "nsm-system",
		ProxyRegistryURL: proxyURL,
		ExpirePeriod:     registrationLifetime,
		ChainCtx:         ctx,
		ClientSet:        fake.NewSimpleClientset(),
	}, id.Tokens,
		registryk8s.WithAuthorizeNSRegistryServer(nsServerPolicy()),
		registryk8s.WithAuthorizeNSERegistryServer(nseServerPolicy()),
		registryk8s.WithAuthorizeNSRegistryClient(nsClientPolicy()),
		registryk8s.WithAuthorizeNSERegistryClient(nseClientPolicy()),
		registryk8s.WithDialOptions(id.DialOptions()...))
}

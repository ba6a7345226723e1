package sdksuite_test

import (
	"context"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	sdknsmgrproxy "github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgrproxy"
	"github.com/networkservicemesh/sdk/pkg/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/chains/memory"
	"github.com/networkservicemesh/sdk/pkg/tools/sandbox"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// newBuilder is sandbox.NewBuilder with our proxy in it. The SDK's options
// cannot be read, so what they carry comes by other ways: the sandbox hands
// the proxy's URL to the registry's supplier, which it calls before the
// proxy's, and the dial options are made as it makes them.
func newBuilder(ctx context.Context, t *testing.T) *sandbox.Builder {
	var listenOn *url.URL
	// Outside the supplier: a restarted proxy keeps its name.
	name := sandbox.UniqueName("nsmgr-proxy")

	return sandbox.NewBuilder(ctx, t).
		SetRegistrySupplier(func(ctx context.Context, tokenGenerator token.GeneratorFunc,
			expiration time.Duration, proxyURL *url.URL, options ...grpc.DialOption,
		) registry.Registry {
			listenOn = proxyURL
			return memory.NewServer(ctx, tokenGenerator,
				memory.WithDefaultExpiration(expiration),
				memory.WithProxyRegistryURL(proxyURL),
				memory.WithDialOptions(options...))
		}).
		SetNSMgrProxySupplier(func(ctx context.Context, registryURL, registryProxyURL *url.URL,
			tokenGenerator token.GeneratorFunc, _ ...sdknsmgrproxy.Option,
		) nsmgr.Nsmgr {
			return nsmgrproxy.NewServer(ctx, registryURL, registryProxyURL, tokenGenerator,
				nsmgrproxy.WithName(name),
				nsmgrproxy.WithListenOn(listenOn),
				nsmgrproxy.WithDialOptions(sandbox.DialOptions(sandbox.WithTokenGenerator(tokenGenerator))...))
		})
}

// The suite would pass just as well against the SDK's own proxy; this is what
// says that it does not.
func TestBuilderUsesOurProxy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	domain := newBuilder(ctx, t).SetDNSDomainName("cluster1").Build()

	ours := reflect.TypeOf(nsmgrproxy.WithName).Out(0).PkgPath()
	proxy := reflect.TypeOf(domain.NSMgrProxy.Nsmgr)
	for proxy.Kind() == reflect.Pointer {
		proxy = proxy.Elem()
	}
	require.Equal(t, ours, proxy.PkgPath())
}

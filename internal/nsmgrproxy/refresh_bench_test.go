package nsmgrproxy_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	stock "github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgrproxy"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// legsOf is how many legs each has: ours must cost the same with few and with many.
// Stock dials for each, and ten thousand would take it minutes.
var legsOf = map[string][]int{"ours": {1, 100, 10_000}, "stock": {1, 1000}}

// BenchmarkRefresh is one refresh through the chain and its shared hop, without
// TLS: the cost of the chain itself, beside the SDK's in the same run.
func BenchmarkRefresh(b *testing.B) {
	for name, chain := range map[string]func(ctx context.Context, wg *sync.WaitGroup, dial []grpc.DialOption) nsmgr.Nsmgr{
		"ours": func(ctx context.Context, wg *sync.WaitGroup, dial []grpc.DialOption) nsmgr.Nsmgr {
			return nsmgrproxy.NewServer(ctx, &url.URL{Scheme: "tcp", Host: registryAddr}, &url.URL{Scheme: "tcp", Host: registryProxyAddr}, testToken,
				nsmgrproxy.WithName("proxy"), nsmgrproxy.WithMapIPFilePath(""), nsmgrproxy.WithDialOptions(dial...), nsmgrproxy.WithWaitGroup(wg))
		},
		"stock": func(ctx context.Context, _ *sync.WaitGroup, dial []grpc.DialOption) nsmgr.Nsmgr {
			return stock.NewServer(ctx, &url.URL{Scheme: "tcp", Host: registryAddr}, &url.URL{Scheme: "tcp", Host: registryProxyAddr}, testToken,
				stock.WithName("proxy"), stock.WithMapIPFilePath(b.TempDir()+"/map-ip.yaml"),
				stock.WithDialOptions(append(dial, grpc.WithBlock())...)) //nolint:staticcheck // as the stock command does
		},
	} {
		for _, legs := range legsOf[name] {
			b.Run(fmt.Sprintf("%s/legs=%d", name, legs), func(b *testing.B) { benchmarkRefresh(b, chain, legs) })
		}
	}
}

func benchmarkRefresh(b *testing.B, newChain func(context.Context, *sync.WaitGroup, []grpc.DialOption) nsmgr.Nsmgr, legs int) {
	wire, local, remote := lbtest.NewWire(), newFakeRegistry(), newFakeRegistry()
	// What stock takes for inbound, since it has looked nothing up.
	local.set("endpoint", "tcp://"+farAddr)
	quiet := log.WithLog(context.Background(), log.Empty())
	ctx, cancel := context.WithCancel(quiet)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	serve := func(addr string, register func(*grpc.Server), opts ...grpc.ServerOption) {
		s := grpc.NewServer(opts...)
		register(s)
		listener := wire.Listen(addr)
		go func() { _ = s.Serve(listener) }()
		b.Cleanup(s.Stop)
	}
	serve(farAddr, lbtest.NewFar().Register)
	serve(registryAddr, local.register)
	serve(registryProxyAddr, remote.register)
	dial := []grpc.DialOption{grpc.WithContextDialer(wire.Dial), grpc.WithTransportCredentials(insecure.NewCredentials())}
	chain := newChain(ctx, &wg, dial)
	serve(proxyAddr, chain.Register, nsmgrproxy.ServerOptions()...)
	cc, err := grpc.NewClient("passthrough:///"+proxyAddr, dial...)
	require.NoError(b, err)
	defer func() { _ = cc.Close() }()
	client := networkservice.NewNetworkServiceClient(cc)
	conns := make([]*networkservice.Connection, legs)
	for n := range conns {
		conns[n], err = client.Request(withToken(quiet, tokenTime), newRequest(n))
		require.NoError(b, err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		n := i % legs
		conns[n], err = client.Request(withToken(quiet, tokenTime), again(conns[n]))
		require.NoError(b, err)
	}
}

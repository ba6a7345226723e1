package nsmgrproxy_test

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// fuzzTime bounds a call: a hostile message must not hold it for longer than a
// good one takes, and everything around the chain is in memory.
const fuzzTime = 500 * time.Millisecond

// inMemory is the whole chain in real time, its neighbours in memory.
func inMemory(t testing.TB) nsmgr.Nsmgr {
	wire := lbtest.NewWire()
	local, remote := newFakeRegistry(), newFakeRegistry()
	remote.set(endpointName, "tcp://"+farAddr)
	for addr, register := range map[string]func(*grpc.Server){
		farAddr:           lbtest.NewPeer("far").Register,
		registryAddr:      local.register,
		registryProxyAddr: remote.register,
	} {
		s := grpc.NewServer()
		register(s)
		listener := wire.Listen(addr)
		go func() { _ = s.Serve(listener) }()
		t.Cleanup(s.Stop)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(log.WithLog(context.Background(), log.Empty()))
	t.Cleanup(func() { cancel(); wg.Wait() })
	return nsmgrproxy.NewServer(ctx,
		&url.URL{Scheme: "tcp", Host: registryAddr}, &url.URL{Scheme: "tcp", Host: registryProxyAddr}, testToken,
		nsmgrproxy.WithName("proxy"), nsmgrproxy.WithMapIPFilePath(""), nsmgrproxy.WithWaitGroup(&wg),
		nsmgrproxy.WithDialOptions(grpc.WithContextDialer(wire.Dial), grpc.WithTransportCredentials(insecure.NewCredentials())))
}

// seed adds messages in wire format, whole and cut short.
func seed(f *testing.F, messages ...proto.Message) {
	for _, m := range messages {
		raw := wireOf(f, m)
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
	}
}

func wireOf(f *testing.F, m proto.Message) []byte {
	raw, err := proto.Marshal(m)
	require.NoError(f, err)
	return raw
}

func fuzzContext(t *testing.T) (context.Context, context.CancelFunc) {
	md, _ := metadata.FromOutgoingContext(withToken(t.Context(), tokenTime))
	ctx := metadata.NewIncomingContext(log.WithLog(t.Context(), log.Empty()), md)
	return context.WithTimeout(ctx, fuzzTime)
}

// without requires that f ends in time and panics nowhere.
func without(t *testing.T, what string, f func(ctx context.Context)) {
	ctx, cancel := fuzzContext(t)
	defer cancel()
	panics, began := guard.Panics(), time.Now()
	f(ctx)
	require.Equal(t, panics, guard.Panics(), "a panic in %s", what)
	require.Less(t, time.Since(began), 20*fuzzTime, "%s", what)
}

func FuzzRequest(f *testing.F) {
	established := newRequest(1)
	established.Connection.Path.PathSegments = append(established.Connection.Path.PathSegments,
		&networkservice.PathSegment{Name: "proxy", Id: "p"}, &networkservice.PathSegment{Name: "far", Id: "f", Token: "a.b.c"})
	reselected := established.Clone()
	reselected.Connection.State = networkservice.State_RESELECT_REQUESTED
	seed(f, newRequest(1), established, reselected, new(networkservice.NetworkServiceRequest),
		&networkservice.NetworkServiceRequest{Connection: new(networkservice.Connection)})
	chain := inMemory(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := new(networkservice.NetworkServiceRequest)
		if proto.Unmarshal(raw, r) != nil {
			return
		}
		without(t, "Request and Close", func(ctx context.Context) {
			conn, err := chain.Request(ctx, r)
			if err == nil {
				require.NotEmpty(t, conn.GetId())
				_, _ = chain.Close(ctx, conn)
			}
		})
	})
}

func FuzzClose(f *testing.F) {
	seed(f, newRequest(1).GetConnection(), new(networkservice.Connection), &networkservice.Connection{Id: "x", Path: &networkservice.Path{Index: 1<<32 - 1}})
	chain := inMemory(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		conn := new(networkservice.Connection)
		if proto.Unmarshal(raw, conn) != nil {
			return
		}
		without(t, "Close", func(ctx context.Context) { _, _ = chain.Close(ctx, conn) })
	})
}

// monitorSink is a subscriber that leaves after the first event.
type monitorSink struct {
	grpc.ServerStream
	ctx   context.Context
	leave context.CancelFunc
}

func (s *monitorSink) Context() context.Context { return s.ctx }

func (s *monitorSink) Send(*networkservice.ConnectionEvent) error { s.leave(); return nil }

func FuzzMonitorConnections(f *testing.F) {
	seed(f, new(networkservice.MonitorScopeSelector),
		&networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: "a", Name: "b"}, {}}, NetworkServices: []string{"s"}})
	chain := inMemory(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		selector := new(networkservice.MonitorScopeSelector)
		if proto.Unmarshal(raw, selector) != nil {
			return
		}
		without(t, "MonitorConnections", func(ctx context.Context) {
			ctx, leave := context.WithCancel(ctx)
			defer leave()
			_ = chain.MonitorConnections(selector, &monitorSink{ctx: ctx, leave: leave})
		})
	})
}

type foundSink struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *foundSink) Context() context.Context { return s.ctx }

func (s *foundSink) Send(*registry.NetworkServiceEndpointResponse) error { return nil }

type servicesSink struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *servicesSink) Context() context.Context { return s.ctx }

func (s *servicesSink) Send(*registry.NetworkServiceResponse) error { return nil }

func FuzzEndpointRegistry(f *testing.F) {
	seed(f, new(registry.NetworkServiceEndpoint), &registry.NetworkServiceEndpoint{
		Name: "endpoint@floating", Url: "tcp://" + farAddr, NetworkServiceNames: []string{serviceName},
		NetworkServiceLabels: map[string]*registry.NetworkServiceLabels{serviceName: {Labels: map[string]string{"a": "b"}}},
	})
	chain := inMemory(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		nse := new(registry.NetworkServiceEndpoint)
		if proto.Unmarshal(raw, nse) != nil {
			return
		}
		without(t, "the endpoint registry", func(ctx context.Context) {
			server := chain.NetworkServiceEndpointRegistryServer()
			_ = server.Find(&registry.NetworkServiceEndpointQuery{NetworkServiceEndpoint: nse.Clone()}, &foundSink{ctx: ctx})
			_, _ = server.Register(ctx, nse.Clone())
			_, _ = server.Unregister(ctx, nse)
		})
	})
}

func FuzzServiceRegistry(f *testing.F) {
	seed(f, new(registry.NetworkService), &registry.NetworkService{Name: serviceName, Payload: "IP", Matches: []*registry.Match{
		{SourceSelector: map[string]string{"a": "b"}, Routes: []*registry.Destination{{DestinationSelector: map[string]string{"c": "d"}}}},
	}})
	chain := inMemory(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		ns := new(registry.NetworkService)
		if proto.Unmarshal(raw, ns) != nil {
			return
		}
		without(t, "the service registry", func(ctx context.Context) {
			server := chain.NetworkServiceRegistryServer()
			_ = server.Find(&registry.NetworkServiceQuery{NetworkService: ns.Clone()}, &servicesSink{ctx: ctx})
			_, _ = server.Register(ctx, ns.Clone())
			_, _ = server.Unregister(ctx, ns)
		})
	})
}

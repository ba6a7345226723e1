package nsmgrproxy_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/vxlan"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/tools/sandbox"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

const (
	proxyAddr         = "10.0.1.4:5004"
	registryAddr      = "10.0.1.2:5002"
	registryProxyAddr = "10.0.1.5:5005"
	farAddr           = "10.9.2.4:5004"

	endpointName = "endpoint@cluster2"
	serviceName  = "service@cluster2"

	// callTime is what the SDK gives a caller's try.
	callTime = 15 * time.Second
	// tokenTime is the shipped NSM_MAX_TOKEN_LIFETIME.
	tokenTime = 10 * time.Minute
)

// world is a proxy between a client's domain and a far side, in a bubble of fake
// time: everything between them is in memory and misbehaves on request.
type world struct {
	*testing.T
	wire   *lbtest.Wire
	far    *lbtest.Peer
	local  *fakeRegistry
	remote *fakeRegistry
	opts   []nsmgrproxy.Option

	wg   sync.WaitGroup
	stop func()
	// drain ends the proxy's context and waits for what it runs.
	drain func()
	cc    *grpc.ClientConn
}

// inBubble runs f in a world of its own. Nothing may be left of it afterwards:
// the bubble fails the test for every goroutine that outlives it.
func inBubble(t *testing.T, f func(w *world), opts ...nsmgrproxy.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			T: t, wire: lbtest.NewWire(), far: lbtest.NewPeer("far"), opts: opts,
			local:  newFakeRegistry(),
			remote: newFakeRegistry(),
		}
		w.remote.set(endpointName, "tcp://"+farAddr)
		defer w.serve(farAddr, w.far.Register)()
		defer w.serve(registryAddr, w.local.register)()
		defer w.serve(registryProxyAddr, w.remote.register)()
		w.start()
		defer func() { w.stop() }()
		cc, err := grpc.NewClient("passthrough:///"+proxyAddr, w.dialOptions()...)
		require.NoError(t, err)
		defer func() { require.NoError(t, cc.Close()) }()
		w.cc = cc
		f(w)
	})
}

func (w *world) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(w.wire.Dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
}

func (w *world) serve(addr string, register func(*grpc.Server), opts ...grpc.ServerOption) (stop func()) {
	s := grpc.NewServer(opts...)
	register(s)
	listener := w.wire.Listen(addr)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	return func() {
		s.Stop()
		require.NoError(w, <-done)
	}
}

// start brings the proxy up, again after a stop.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	opts := append([]nsmgrproxy.Option{
		nsmgrproxy.WithName("proxy"),
		nsmgrproxy.WithListenOn(&url.URL{Scheme: "tcp", Host: proxyAddr}),
		nsmgrproxy.WithDialOptions(w.dialOptions()...),
		nsmgrproxy.WithMapIPFilePath(""),
		nsmgrproxy.WithWaitGroup(&w.wg),
	}, w.opts...)
	chain := nsmgrproxy.NewServer(ctx,
		&url.URL{Scheme: "tcp", Host: registryAddr},
		&url.URL{Scheme: "tcp", Host: registryProxyAddr},
		testToken, opts...)
	stop := w.serve(proxyAddr, func(s *grpc.Server) {
		networkservice.RegisterNetworkServiceServer(s, chain)
		networkservice.RegisterMonitorConnectionServer(s, chain)
		registry.RegisterNetworkServiceEndpointRegistryServer(s, chain.NetworkServiceEndpointRegistryServer())
	}, nsmgrproxy.ServerOptions()...)
	w.drain = func() {
		cancel()
		w.wg.Wait()
	}
	w.stop = func() {
		cancel()
		synctest.Wait()
		stop()
		w.wg.Wait()
		w.stop = func() {}
	}
}

// testToken makes tokens of the shape that the registries want.
var testToken = sandbox.GenerateExpiringToken(tokenTime)

// newRequest is what a forwarder sends for the connection of that number.
func newRequest(n int) *networkservice.NetworkServiceRequest {
	path := &networkservice.Path{Index: 2}
	for _, name := range []string{"client", "nsmgr", "forwarder"} {
		path.PathSegments = append(path.PathSegments, &networkservice.PathSegment{Name: name, Id: fmt.Sprintf("%s-%d", name, n)})
	}
	return &networkservice.NetworkServiceRequest{
		Connection: &networkservice.Connection{
			Id:                         path.PathSegments[2].Id,
			NetworkService:             serviceName,
			NetworkServiceEndpointName: endpointName,
			Context:                    &networkservice.ConnectionContext{},
			Path:                       path,
		},
		MechanismPreferences: []*networkservice.Mechanism{{
			Cls: "REMOTE", Type: vxlan.MECHANISM, Parameters: map[string]string{"src_ip": "10.0.1.9"},
		}},
	}
}

// again is the refresh of a connection that was answered.
func again(conn *networkservice.Connection) *networkservice.NetworkServiceRequest {
	return &networkservice.NetworkServiceRequest{Connection: conn.Clone()}
}

// call is the context of a neighbour's call: a deadline and a token.
func call() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	return withToken(ctx, tokenTime), cancel
}

func withToken(ctx context.Context, lifetime time.Duration) context.Context {
	token, expires, err := sandbox.GenerateExpiringToken(lifetime)(nil)
	if err != nil {
		panic(err)
	}
	return metadata.AppendToOutgoingContext(ctx,
		"nsm-client-token", token,
		"nsm-client-token-expires", expires.Format(time.RFC3339Nano))
}

func (w *world) request(r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	ctx, cancel := call()
	defer cancel()
	return networkservice.NewNetworkServiceClient(w.cc).Request(ctx, r)
}

// establish requests the connection of that number and lets everything settle.
func (w *world) establish(n int) *networkservice.Connection {
	w.Helper()
	conn, err := w.request(newRequest(n))
	require.NoError(w, err)
	synctest.Wait()
	return conn
}

func (w *world) close(conn *networkservice.Connection) error {
	ctx, cancel := call()
	defer cancel()
	_, err := networkservice.NewNetworkServiceClient(w.cc).Close(ctx, conn.Clone())
	return err
}

// subscriber is a neighbour's monitor stream and what came on it.
type subscriber struct {
	*testing.T
	mu     sync.Mutex
	events []*networkservice.ConnectionEvent
	err    error
	leave  context.CancelFunc
	done   chan struct{}
}

// subscribe joins as the forwarder of the connection of that number does.
func (w *world) subscribe(n int) *subscriber {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := networkservice.NewMonitorConnectionClient(w.cc).MonitorConnections(ctx, &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Name: "forwarder", Id: fmt.Sprintf("forwarder-%d", n)}},
	})
	require.NoError(w, err)
	s := &subscriber{T: w.T, leave: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			event, err := stream.Recv()
			s.mu.Lock()
			s.err = err
			if err == nil {
				s.events = append(s.events, event)
			}
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	synctest.Wait()
	first := s.next()
	require.Len(w, first, 1, "a stream begins with an initial state")
	require.Equal(w, networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, first[0].GetType())
	return s
}

// next returns what came since the last call, once everything is at rest.
func (s *subscriber) next() []*networkservice.ConnectionEvent {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

func (s *subscriber) nothing(why string) {
	s.Helper()
	require.Empty(s, s.next(), why)
}

// one requires exactly one event of that kind and state, and returns its
// connection.
func (s *subscriber) one(kind networkservice.ConnectionEventType, state networkservice.State) *networkservice.Connection {
	s.Helper()
	events := s.next()
	require.Len(s, events, 1)
	require.Equal(s, kind, events[0].GetType())
	require.Len(s, events[0].GetConnections(), 1)
	for id, conn := range events[0].GetConnections() {
		// The shape of an event: key, id and place are the sender's own.
		require.Equal(s, id, conn.GetId())
		require.Equal(s, id, conn.GetCurrentPathSegment().GetId())
		require.Equal(s, "proxy", conn.GetCurrentPathSegment().GetName())
		require.EqualValues(s, 3, conn.GetPath().GetIndex())
		require.Equal(s, endpointName, conn.GetNetworkServiceEndpointName())
		require.Equal(s, state, conn.GetState())
		return conn
	}
	return nil
}

func (s *subscriber) up() *networkservice.Connection {
	s.Helper()
	return s.one(networkservice.ConnectionEventType_UPDATE, networkservice.State_UP)
}

func (s *subscriber) down() *networkservice.Connection {
	s.Helper()
	return s.one(networkservice.ConnectionEventType_UPDATE, networkservice.State_DOWN)
}

// end leaves and waits for the stream's end.
func (s *subscriber) end() {
	s.leave()
	<-s.done
}

// fakeRegistry answers Find from a map of names and counts how often it did.
type fakeRegistry struct {
	registry.UnimplementedNetworkServiceEndpointRegistryServer
	mu    sync.Mutex
	urls  map[string]string
	finds int
}

func newFakeRegistry() *fakeRegistry { return &fakeRegistry{urls: make(map[string]string)} }

func (r *fakeRegistry) register(s *grpc.Server) {
	registry.RegisterNetworkServiceEndpointRegistryServer(s, r)
}

func (r *fakeRegistry) set(name, u string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.urls[name] = u
}

func (r *fakeRegistry) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.finds
}

func (r *fakeRegistry) Find(query *registry.NetworkServiceEndpointQuery, stream registry.NetworkServiceEndpointRegistry_FindServer) error {
	r.mu.Lock()
	r.finds++
	name := query.GetNetworkServiceEndpoint().GetName()
	u, ok := r.urls[name]
	r.mu.Unlock()
	if !ok {
		return nil
	}
	return stream.Send(&registry.NetworkServiceEndpointResponse{
		NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name, Url: u},
	})
}

func (r *fakeRegistry) Register(_ context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	r.set(nse.GetName(), nse.GetUrl())
	return nse, nil
}

func (r *fakeRegistry) Unregister(_ context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.urls, nse.GetName())
	return new(emptypb.Empty), nil
}

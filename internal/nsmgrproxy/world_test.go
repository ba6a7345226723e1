package nsmgrproxy_test

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	"github.com/networkservicemesh/sdk/pkg/tools/sandbox"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	base   context.Context // whose logger the proxy has, if there is one

	wg    sync.WaitGroup
	chain nsmgr.Nsmgr
	stop  func()
	// drain ends the proxy's context and waits for what it runs.
	drain func()
	cc    *grpc.ClientConn
}

// inBubble runs f in a world of its own. Nothing may be left of it afterwards:
// the bubble fails the test for every goroutine that outlives it.
func inBubble(t *testing.T, f func(w *world), opts ...nsmgrproxy.Option) {
	t.Helper()
	inBubbleOf(context.Background(), t, f, opts...)
}

// inBubbleOf gives the proxy the logger of ctx.
func inBubbleOf(ctx context.Context, t *testing.T, f func(w *world), opts ...nsmgrproxy.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			T: t, wire: lbtest.NewWire(), far: lbtest.NewPeer("far"), opts: opts, base: ctx,
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
	ctx, cancel := context.WithCancel(w.base)
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
	w.chain = chain
	stop := w.serve(proxyAddr, chain.Register, nsmgrproxy.ServerOptions()...)
	w.drain = func() {
		cancel()
		w.wg.Wait()
	}
	w.stop = func() {
		cancel()
		synctest.Wait()
		stop()
		w.wg.Wait()
		synctest.Wait() // the neighbours' connections have noticed
		w.stop = func() {}
	}
}

// testToken makes tokens of the shape that the registries want.
var testToken = sandbox.GenerateExpiringToken(tokenTime)

// newRequest is what a forwarder sends for the connection of that number.
func newRequest(n int) *networkservice.NetworkServiceRequest {
	return lbtest.NewRequest(n, serviceName, endpointName)
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
	// A forwarder signs its segment of the path anew at each call.
	r = r.Clone()
	r.GetConnection().GetCurrentPathSegment().Expires = timestamppb.New(time.Now().Add(tokenTime))
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

// watched is an established connection with its forwarder's stream, which has
// seen the first UPDATE.
func (w *world) watched(n int) (*subscriber, *networkservice.Connection) {
	w.Helper()
	s := w.subscribe(n)
	conn := w.establish(n)
	s.up()
	return s, conn
}

func (w *world) close(conn *networkservice.Connection) error {
	ctx, cancel := call()
	defer cancel()
	_, err := networkservice.NewNetworkServiceClient(w.cc).Close(ctx, conn.Clone())
	return err
}

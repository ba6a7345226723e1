package neighbours

import (
	"context"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestMain lets this binary be the far side, too, as the bench's binary is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == FarCommand {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		if err := RunFar(ctx); err != nil {
			panic(err)
		}
		stop()
		return
	}
	goleak.VerifyTestMain(m)
}

const wait = 10 * time.Second

func started(t *testing.T, role Role) *Neighbours {
	dir, err := os.MkdirTemp("", "bench") // t.TempDir may exceed the 108 bytes of a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n, err := Start(t.Context(), role, dir, os.Args[0])
	require.NoError(t, err)
	t.Cleanup(n.Close)
	return n
}

func (n *Neighbours) dial(t *testing.T, to string) *grpc.ClientConn {
	cc, err := grpc.NewClient("passthrough:///"+to, n.Downstream.DialOptions(new(atomic.Int64))...)
	require.NoError(t, err)
	return cc
}

func TestConnectionsAndHandshakesAreCounted(t *testing.T) {
	n := started(t, Outbound)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	for range 2 {
		cc := n.dial(t, n.Far)
		_, err := healthpb.NewHealthClient(cc).Check(ctx, new(healthpb.HealthCheckRequest))
		require.NoError(t, err)
		require.EqualValues(t, 1, n.Counts().Open)
		require.NoError(t, cc.Close())
		require.Eventually(t, func() bool { return n.Counts().Open == 0 }, wait, time.Millisecond)
	}
	raw, err := net.Dial("tcp", n.Far)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return n.Counts().Connections == 3 }, wait, time.Millisecond)
	require.NoError(t, raw.Close())
	require.EqualValues(t, 2, n.Counts().Handshakes, "one never began")
	require.Zero(t, n.Counts().RegistryConnections)
}

func TestCutEndsConnectionsAndNothingElse(t *testing.T) {
	n := started(t, Outbound)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	cc := n.dial(t, n.Far)
	defer func() { _ = cc.Close() }()
	require.Zero(t, n.Cut())
	for range 2 {
		_, err := healthpb.NewHealthClient(cc).Check(ctx, new(healthpb.HealthCheckRequest), grpc.WaitForReady(true))
		require.NoError(t, err)
		require.Equal(t, 1, n.Cut())
		require.Eventually(t, func() bool { return n.Counts().Open == 0 }, wait, time.Millisecond)
		cc.ResetConnectBackoff()
	}
	require.EqualValues(t, 2, n.Counts().Connections)
}

func TestRegistriesKnowTheEndpointOnTheRightSide(t *testing.T) {
	for role, c := range map[Role]struct{ asked, other func(*Neighbours) string }{
		Outbound: {func(n *Neighbours) string { return n.RegistryProxy }, func(n *Neighbours) string { return n.Registry }},
		Inbound:  {func(n *Neighbours) string { return n.Registry }, func(n *Neighbours) string { return n.RegistryProxy }},
	} {
		n := started(t, role)
		name := map[Role]string{Outbound: Endpoint, Inbound: endpoint}[role]
		require.Equal(t, []string{"tcp://" + n.Far}, n.find(t, c.asked(n), name))
		require.Empty(t, n.find(t, c.other(n), name))
		require.EqualValues(t, 2, n.Counts().Finds)
		require.EqualValues(t, 2, n.Counts().RegistryConnections)
	}
}

func (n *Neighbours) find(t *testing.T, at, name string) []string {
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	cc := n.dial(t, at)
	defer func() { _ = cc.Close() }()
	stream, err := registry.NewNetworkServiceEndpointRegistryClient(cc).Find(ctx,
		&registry.NetworkServiceEndpointQuery{NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name}})
	require.NoError(t, err)
	var urls []string
	for _, nse := range registry.ReadNetworkServiceEndpointList(stream) {
		urls = append(urls, nse.GetUrl())
	}
	return urls
}

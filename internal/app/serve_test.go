package app

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/config"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// served is what serve is given in a bubble, and what it returned.
type served struct {
	cancel     context.CancelFunc
	chain      context.Context // what register got
	background sync.WaitGroup
	conn       *grpc.ClientConn
	result     chan error
}

// startServing serves handler as every method.
func startServing(t *testing.T, handler grpc.StreamHandler) *served {
	s := &served{result: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	wire := lbtest.NewWire()
	listener := wire.Listen("server")
	server := grpc.NewServer(grpc.UnknownServiceHandler(handler))
	go func() {
		s.result <- serve(ctx, server, []net.Listener{listener}, &s.background, func(ctx context.Context) { s.chain = ctx })
	}()
	conn, err := grpc.NewClient("passthrough:bubble", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return wire.Dial(ctx, "server") }))
	require.NoError(t, err)
	s.conn = conn
	return s
}

// call makes a call that ends when the handler does.
func (s *served) call(t *testing.T) <-chan error {
	result := make(chan error, 1)
	go func() {
		result <- s.conn.Invoke(t.Context(), "/any/Method", &emptypb.Empty{}, &emptypb.Empty{})
	}()
	return result
}

func TestServeEndsChainBeforeConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *served
		s = startServing(t, func(any, grpc.ServerStream) error {
			<-s.chain.Done()
			return status.Error(codes.Unavailable, "the chain says so")
		})
		defer func() { _ = s.conn.Close() }()
		call := s.call(t)
		synctest.Wait()
		require.Empty(t, call)

		started := time.Now()
		s.cancel()
		require.EqualError(t, <-call, "rpc error: code = Unavailable desc = the chain says so")
		require.NoError(t, <-s.result)
		require.Zero(t, time.Since(started))
	})
}

func TestServeWaitsForCallsAndBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServing(t, func(_ any, stream grpc.ServerStream) error {
			time.Sleep(2 * time.Second)
			return stream.SendMsg(&emptypb.Empty{})
		})
		defer func() { _ = s.conn.Close() }()
		s.background.Go(func() { time.Sleep(3 * time.Second) })
		call := s.call(t)
		synctest.Wait()
		started := time.Now()
		s.cancel()
		require.NoError(t, <-call, "a call under way gets its answer")
		require.NoError(t, <-s.result)
		require.Equal(t, 3*time.Second, time.Since(started))
	})
}

// This one is not in a bubble: while grpc's two stops wait for one handler, the
// second one waits at a mutex, where a bubble's clock stands still.
func TestServeDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	release, called := make(chan struct{}), make(chan struct{})
	s := startServing(t, func(any, grpc.ServerStream) error {
		close(called)
		<-release
		return nil
	})
	defer func() { _ = s.conn.Close() }()
	defer s.background.Wait()
	s.background.Go(func() { <-release })
	defer close(release)
	call := s.call(t)
	<-called

	started := time.Now()
	s.cancel()
	require.NoError(t, <-s.result)
	require.InDelta(t, stopTimeout+cutTimeout, time.Since(started), float64(time.Second))
	require.Equal(t, codes.Unavailable, status.Code(<-call))
}

func TestServeReturnsFaultOfListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := lbtest.NewWire()
		good, bad := wire.Listen("good"), brokenListener{wire.Listen("bad")}
		var background sync.WaitGroup
		err := serve(t.Context(), grpc.NewServer(), []net.Listener{good, bad}, &background, func(ctx context.Context) {
			background.Go(func() { <-ctx.Done() })
		})
		require.EqualError(t, err, "app: serve bad: broken")
		_, err = wire.Dial(t.Context(), "good")
		require.Error(t, err, "the other listener is closed")
	})
}

type brokenListener struct{ net.Listener }

func (brokenListener) Accept() (net.Conn, error) { return nil, errors.New("broken") }

func listenURLs(t *testing.T, value string) []url.URL {
	c, _, err := config.FromEnv([]string{"NSM_LISTEN_ON=" + value,
		"NSM_REGISTRY_URL=a:1", "NSM_REGISTRY_PROXY_URL=a:1", "SPIFFE_ENDPOINT_SOCKET=unix:///s"})
	require.NoError(t, err)
	return c.ListenOn
}

func TestListen(t *testing.T) {
	dir, err := os.MkdirTemp("", "app")
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	open := func(urls string) ([]net.Listener, error) { return listen(listenURLs(t, urls)) }
	socket := filepath.Join(dir, "made", "s")

	// What a killed process leaves behind: the file stays when it is closed.
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o700))
	stale, err := net.Listen("unix", socket)
	require.NoError(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	require.FileExists(t, socket)

	listeners, err := open("unix://" + socket + ",tcp://127.0.0.1:0,unix://" + filepath.Join(dir, "new", "folder", "s"))
	require.NoError(t, err)
	require.Len(t, listeners, 3)
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(socketMode), info.Mode().Perm())
	require.Equal(t, "tcp://"+listeners[1].Addr().String(), publicURL(t.Context(), listeners).String(), "the first TCP listener")
	require.Equal(t, "unix://"+socket, publicURL(t.Context(), listeners[:1]).String())

	_, err = open("unix://" + filepath.Join(dir, "other") + ",tcp://" + listeners[1].Addr().String())
	require.ErrorContains(t, err, "app: listen on tcp://"+listeners[1].Addr().String())
	require.NoFileExists(t, filepath.Join(dir, "other"), "all or none")
	for _, l := range listeners {
		require.NoError(t, l.Close())
	}
	require.NoFileExists(t, socket)

	require.NoError(t, os.WriteFile(socket, []byte("precious"), 0o600))
	_, err = open("unix://" + socket)
	require.ErrorContains(t, err, "there is a file that is no socket")
	content, err := os.ReadFile(socket)
	require.NoError(t, err)
	require.True(t, bytes.Equal([]byte("precious"), content))
}

func TestPublicURLOfEveryAddress(t *testing.T) {
	listeners, err := listen(listenURLs(t, "tcp://:0"))
	require.NoError(t, err)
	defer func() { _ = listeners[0].Close() }()
	u := publicURL(t.Context(), listeners)
	require.Equal(t, "tcp", u.Scheme)
	_, port, err := net.SplitHostPort(listeners[0].Addr().String())
	require.NoError(t, err)
	require.Equal(t, port, u.Port())
	// A machine with nothing but loopback has no address to give.
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "" {
		require.NotNil(t, ip)
		require.False(t, ip.IsUnspecified() || ip.IsLoopback())
	}
}

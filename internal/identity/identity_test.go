package identity_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// wait bounds what takes milliseconds, or a retry or two.
const wait = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder keeps what is logged.
type recorder struct {
	log.Logger
	cancel      context.CancelFunc // ends the context of Open
	mu          sync.Mutex
	info, debug []string
}

func (r *recorder) Infof(format string, v ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info = append(r.info, fmt.Sprintf(format, v...))
}

func (r *recorder) Debugf(format string, v ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.debug = append(r.debug, fmt.Sprintf(format, v...))
}

func count(lines []string, part string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func (r *recorder) infos(part string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return count(r.info, part)
}

func (r *recorder) debugs(part string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return count(r.debug, part)
}

func eventually(t *testing.T, condition func() bool, what string) {
	require.Eventually(t, condition, wait, 5*time.Millisecond, what)
}

func socketPath(t *testing.T) string {
	dir, err := os.MkdirTemp("", "id") // t.TempDir may exceed the 108 bytes of a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func newCA(t *testing.T, td string) *identitytest.CA {
	ca, err := identitytest.NewCA(td)
	require.NoError(t, err)
	return ca
}

func serve(t *testing.T, socket string, ca *identitytest.CA, opts ...identitytest.Option) *identitytest.WorkloadAPI {
	api, err := identitytest.ServeWorkloadAPI(socket, ca, "proxy", opts...)
	require.NoError(t, err)
	t.Cleanup(api.Close)
	return api
}

type opened struct {
	source *identity.Source
	err    error
}

// open starts Open and returns what it will return.
func open(t *testing.T, socket string) (<-chan opened, *recorder) {
	r := &recorder{Logger: log.Default()}
	ctx, cancel := context.WithTimeout(log.WithLog(context.Background(), r), wait)
	r.cancel = cancel
	result := make(chan opened, 1)
	go func() {
		source, err := identity.Open(ctx, "unix://"+socket)
		result <- opened{source, err}
	}()
	t.Cleanup(cancel)
	return result, r
}

func mustOpen(t *testing.T, result <-chan opened) *identity.Source {
	o := <-result
	require.NoError(t, o.err)
	t.Cleanup(func() { require.NoError(t, o.source.Close()) })
	return o.source
}

func TestOpenWaitsForMissingSocket(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	result, r := open(t, socket)
	eventually(t, func() bool { return r.debugs("still waiting") >= 2 }, "repeats are debug")
	require.Equal(t, 1, r.infos("identity: waiting for the workload API"))
	require.Empty(t, result)

	serve(t, socket, newCA(t, "nsm.one"))
	source := mustOpen(t, result)
	require.Equal(t, "spiffe://nsm.one/proxy", source.ID())
	require.Equal(t, 1, r.infos("identity: waiting for the workload API"))
	require.Equal(t, 1, r.infos(`identity: SVID "spiffe://nsm.one/proxy", valid until`))
}

func TestOpenWaitsForEntry(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	api := serve(t, socket, newCA(t, "nsm.one"))
	api.SetDenied(true)
	result, r := open(t, socket)
	eventually(t, func() bool { return r.debugs("PermissionDenied") >= 1 }, "refused twice")
	require.Equal(t, 1, r.infos("PermissionDenied"))
	require.Empty(t, result)
	api.SetDenied(false)
	mustOpen(t, result)
}

func TestOpenEndsWithContext(t *testing.T) {
	t.Parallel()
	result, r := open(t, socketPath(t))
	eventually(t, func() bool { return r.infos("identity: waiting") == 1 }, "asked once")
	r.cancel()
	o := <-result
	require.Nil(t, o.source)
	require.ErrorIs(t, o.err, context.Canceled)
	require.ErrorContains(t, o.err, "connect: no such file", "what the agent said last")
}

func TestOpenRefusesImpossibleAddress(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"nonsense", "http://localhost:1", "unix://", "tcp://host.example:80"} {
		_, err := identity.Open(t.Context(), addr)
		require.ErrorContains(t, err, "identity: workload API", addr)
	}
}

func TestSVIDOutlivesAgentAndIsRenewed(t *testing.T) {
	t.Parallel()
	socket, ca := socketPath(t), newCA(t, "nsm.one")
	api := serve(t, socket, ca)
	result, r := open(t, socket)
	source := mustOpen(t, result)
	first, err := source.GetX509SVID()
	require.NoError(t, err)

	api.Close()
	eventually(t, func() bool { return r.infos("lost, the SVID stays in use until") == 1 }, "loss is said")
	during, err := source.GetX509SVID()
	require.NoError(t, err)
	require.Equal(t, first, during)

	api = serve(t, socket, ca, identitytest.WithFederated(newCA(t, "nsm.two")))
	eventually(t, func() bool { return r.infos("renewed, valid until") == 1 }, "agent is back")
	second, err := source.GetX509SVID()
	require.NoError(t, err)
	require.NotEqual(t, first, second)

	api.SetFederated()
	eventually(t, func() bool { return r.infos("bundles of 1 trust domains") == 1 }, "bundle is gone")
	require.Equal(t, 1, r.infos("lost"), "said once")

	require.NoError(t, source.Close())
	after, err := source.GetX509SVID()
	require.NoError(t, err)
	require.Equal(t, second, after)
}

// cancelling is an agent, or a relay before one, that ends its streams with
// Canceled: for go-spiffe that is the end of the watch.
type cancelling struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	mu    sync.Mutex
	calls int
}

func (c *cancelling) FetchX509SVID(*workload.X509SVIDRequest, grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	return status.FromContextError(context.Canceled).Err()
}

func (c *cancelling) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func TestOpenSurvivesCanceled(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	fake, server := &cancelling{}, grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, fake)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	result, r := open(t, socket)
	eventually(t, func() bool { return fake.count() >= 2 }, "asked again")
	require.Equal(t, 1, r.infos("identity: waiting for the workload API"))
	server.Stop()
	require.NoError(t, <-served)

	serve(t, socket, newCA(t, "nsm.one"))
	mustOpen(t, result)
}

// check makes a health check over mutual TLS and returns what the client knows
// of its peer.
func check(t *testing.T, server, client credentials.TransportCredentials) (credentials.AuthInfo, error) {
	wire := lbtest.NewWire()
	listener := wire.Listen("server")
	s := grpc.NewServer(grpc.Creds(server))
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	defer func() {
		s.Stop()
		require.NoError(t, <-served)
	}()
	conn, err := grpc.NewClient("passthrough:peer", grpc.WithTransportCredentials(client),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return wire.Dial(ctx, "server") }))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	var p peer.Peer
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&p))
	return p.AuthInfo, err
}

func TestCredentialsAcrossDomains(t *testing.T) {
	t.Parallel()
	one, two := newCA(t, "nsm.one"), newCA(t, "nsm.two")
	near, far := socketPath(t), socketPath(t)
	nearAPI := serve(t, near, one, identitytest.WithFederated(two))
	serve(t, far, two, identitytest.WithFederated(one), identitytest.WithTTL(3*time.Minute))
	nearResult, r := open(t, near)
	farResult, _ := open(t, far)
	nearSource, farSource := mustOpen(t, nearResult), mustOpen(t, farResult)

	info, err := check(t, farSource.ServerCredentials(), nearSource.ClientCredentials())
	require.NoError(t, err)
	_, err = check(t, nearSource.ServerCredentials(), farSource.ClientCredentials())
	require.NoError(t, err)
	require.IsType(t, credentials.TLSInfo{}, info)

	_, err = check(t, farSource.ServerCredentials(one.TrustDomain()), nearSource.ClientCredentials(two.TrustDomain()))
	require.NoError(t, err, "named on both sides")
	_, err = check(t, farSource.ServerCredentials(two.TrustDomain()), nearSource.ClientCredentials())
	require.Equal(t, codes.Unavailable, status.Code(err), "not a domain that may connect")
	_, err = check(t, farSource.ServerCredentials(), nearSource.ClientCredentials(one.TrustDomain()))
	require.Equal(t, codes.Unavailable, status.Code(err), "not a domain to connect to")

	tok, expires, err := nearSource.TokenGenerator(10 * time.Minute)(info)
	require.NoError(t, err)
	require.NotEmpty(t, tok)
	require.WithinDuration(t, time.Now().Add(3*time.Minute), expires, 5*time.Second, "capped by the peer's certificate")
	_, expires, err = nearSource.TokenGenerator(10 * time.Minute)(nil)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(10*time.Minute), expires, 5*time.Second)

	nearAPI.SetFederated()
	eventually(t, func() bool { return r.infos("bundles of 1 trust domains") == 1 }, "no longer federated")
	_, err = check(t, nearSource.ServerCredentials(), farSource.ClientCredentials())
	require.Equal(t, codes.Unavailable, status.Code(err))
	_, err = check(t, farSource.ServerCredentials(), nearSource.ClientCredentials())
	require.Equal(t, codes.Unavailable, status.Code(err))
}

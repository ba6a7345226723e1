package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/sirupsen/logrus"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
)

const (
	// wait bounds what takes a second at most.
	wait = 20 * time.Second
	// promised is how fast the process ends.
	promised = 10 * time.Second
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output may be written to and read at the same time.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// process is Main under way.
type process struct {
	logs   *output
	cancel context.CancelFunc
	status chan int
}

func start(t *testing.T, environ ...string) *process {
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{logs: &output{}, cancel: cancel, status: make(chan int, 1)}
	go func() { p.status <- Main(ctx, nil, environ, io.Discard, p.logs) }()
	t.Cleanup(func() { logrus.SetOutput(os.Stderr) })
	return p
}

func (p *process) says(t *testing.T, part string) {
	require.Eventually(t, func() bool { return strings.Contains(p.logs.String(), part) }, wait, 5*time.Millisecond, part)
}

func (p *process) endsWith(t *testing.T, status int, within time.Duration) {
	select {
	case got := <-p.status:
		require.Equal(t, status, got, p.logs.String())
	case <-time.After(within):
		require.FailNow(t, "still running", p.logs.String())
	}
}

// place is a folder with sockets, and an environment that uses them.
type place struct {
	ca              *identitytest.CA
	agent, listener string
	environ         []string
}

func newPlace(t *testing.T) *place {
	dir, err := os.MkdirTemp("", "app") // t.TempDir may exceed the 108 bytes of a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ca, err := identitytest.NewCA("nsm.one")
	require.NoError(t, err)
	p := &place{ca: ca, agent: filepath.Join(dir, "agent"), listener: filepath.Join(dir, "run", "proxy")}
	p.environ = []string{
		"SPIFFE_ENDPOINT_SOCKET=unix://" + p.agent,
		"NSM_LISTEN_ON=unix://" + p.listener,
		"NSM_REGISTRY_URL=127.0.0.1:1",
		"NSM_REGISTRY_PROXY_URL=127.0.0.1:1",
		"NSM_MAP_IP_FILE_PATH=" + filepath.Join(dir, "map-ip.yaml"),
	}
	return p
}

func (p *place) serveAgent(t *testing.T, opts ...identitytest.Option) *identitytest.WorkloadAPI {
	api, err := identitytest.ServeWorkloadAPI(p.agent, p.ca, "nsmgr-proxy", opts...)
	require.NoError(t, err)
	t.Cleanup(api.Close)
	return api
}

// dial connects to target with an identity of ca that trusts p's domain, too.
func (p *place) dial(t *testing.T, target string, ca *identitytest.CA) *grpc.ClientConn {
	source, err := identitytest.NewSource(ca, "peer", time.Hour, p.ca)
	require.NoError(t, err)
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(
		credentials.NewTLS(tlsconfig.MTLSClientConfig(source, source, tlsconfig.AuthorizeAny()))))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func check(t *testing.T, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err == nil && answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return errors.New(answer.GetStatus().String())
	}
	return err
}

func TestQuestions(t *testing.T) {
	ask := func(args ...string) (status int, out, errOut string) {
		var o, e bytes.Buffer
		status = Main(t.Context(), args, nil, &o, &e)
		return status, o.String(), e.String()
	}
	for _, arg := range []string{"--help", "-h"} {
		status, out, errOut := ask(arg)
		require.Zero(t, status)
		require.Contains(t, out, "Usage: nsmgr-proxy [--help | --version]")
		require.Contains(t, out, "NSM_MONITOR_GRACE")
		require.Empty(t, errOut)
	}
	status, out, errOut := ask("--version")
	require.Zero(t, status)
	require.Regexp(t, `^nsmgr-proxy \S+ .*go1\.\d+`, out)
	require.Empty(t, errOut)
	for _, args := range [][]string{{"run"}, {"--port"}, {"--version", "--help"}, {""}} {
		status, out, errOut = ask(args...)
		require.Equal(t, 2, status)
		require.Empty(t, out)
		require.Contains(t, errOut, "nsmgr-proxy: unknown argument")
	}
	require.Equal(t, 1, Main(t.Context(), []string{"--help"}, nil, brokenPipe{}, io.Discard))
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestConfigFaults(t *testing.T) {
	var out, errOut bytes.Buffer
	status := Main(t.Context(), nil, []string{"NSM_LOG_LEVEL=LOUD", "NSM_DIAL_TIMEOUT=0"}, &out, &errOut)
	require.Equal(t, 1, status)
	require.Empty(t, out.String())
	lines := strings.Split(strings.TrimSpace(errOut.String()), "\n")
	require.Len(t, lines, 5, "two of the values, three missing")
	for _, line := range lines {
		require.Regexp(t, `^config: [A-Z_]+( is not set|=")`, line)
	}
}

func TestWaitsForIdentityThenServes(t *testing.T) {
	here := newPlace(t)
	there, err := identitytest.NewCA("nsm.two")
	require.NoError(t, err)
	stranger, err := identitytest.NewCA("nsm.three")
	require.NoError(t, err)
	p := start(t, append(here.environ, "NSM_IP=10.0.0.1", "NSM_REGISTRY_SERVER_POLICIES=etc/nsm/opa/typo/.*.rego")...)
	p.says(t, "identity: waiting for the workload API")
	p.says(t, "NSM_IP is not a variable of this program")
	p.says(t, `no policy file matches "etc/nsm/opa/typo/.*.rego"`)
	require.NoFileExists(t, here.listener, "it does not listen before it can serve")
	require.Empty(t, p.status)

	here.serveAgent(t, identitytest.WithFederated(there))
	p.says(t, "Startup completed in ")
	p.says(t, `SVID: "spiffe://nsm.one/nsmgr-proxy"`)
	require.NoError(t, check(t, here.dial(t, "unix://"+here.listener, here.ca)))
	require.NoError(t, check(t, here.dial(t, "unix://"+here.listener, there)))
	require.Equal(t, codes.Unavailable, status.Code(check(t, here.dial(t, "unix://"+here.listener, stranger))))

	p.cancel()
	p.endsWith(t, 0, promised)
	p.says(t, "app: stopped in ")
	require.NoFileExists(t, here.listener)
	require.NotContains(t, p.logs.String(), "[ERRO")
	require.NotContains(t, p.logs.String(), "did not end")
}

func TestEndsOnSignals(t *testing.T) {
	here := newPlace(t)
	p := start(t, here.environ...)
	p.says(t, "identity: waiting")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	p.endsWith(t, 0, promised)
	p.says(t, "told to end before it had an identity")

	here.serveAgent(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		p = start(t, here.environ...)
		p.says(t, "Startup completed in ")
		require.NoError(t, syscall.Kill(os.Getpid(), signal))
		p.endsWith(t, 0, promised)
		p.says(t, "app: stopping: "+signal.String())
	}
}

func TestStopEndsMonitorStreamsWithUnavailable(t *testing.T) {
	here := newPlace(t)
	here.serveAgent(t)
	p := start(t, here.environ...)
	p.says(t, "Startup completed in ")
	stream, err := networkservice.NewMonitorConnectionClient(here.dial(t, "unix://"+here.listener, here.ca)).
		MonitorConnections(t.Context(), &networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Name: "peer"}}})
	require.NoError(t, err)
	first, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, first.GetType())

	p.cancel()
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), err)
	p.endsWith(t, 0, promised)
	require.NotContains(t, p.logs.String(), "connections are cut")
}

func TestEndsThoughPeerStopsInHandshake(t *testing.T) {
	here := newPlace(t)
	here.serveAgent(t)
	p := start(t, here.environ...)
	p.says(t, "Startup completed in ")
	conn, err := net.Dial("unix", here.listener)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	p.cancel()
	p.endsWith(t, 0, promised)
}

func TestListensOnAllURLsOrFails(t *testing.T) {
	here := newPlace(t)
	here.serveAgent(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	p := start(t, append([]string{"NSM_LISTEN_ON=unix://" + here.listener + ",tcp://" + taken.Addr().String()}, here.environ...)...)
	p.endsWith(t, 1, wait)
	require.Regexp(t, regexp.QuoteMeta("app: listen on tcp://"+taken.Addr().String())+".*address already in use\n$", p.logs.String())
	require.NoFileExists(t, here.listener)

	require.NoError(t, taken.Close())
	p = start(t, append([]string{"NSM_LISTEN_ON=unix://" + here.listener + ",tcp://" + taken.Addr().String()}, here.environ...)...)
	p.says(t, "Startup completed in ")
	require.NoError(t, check(t, here.dial(t, "unix://"+here.listener, here.ca)))
	require.NoError(t, check(t, here.dial(t, taken.Addr().String(), here.ca)))
	p.cancel()
	p.endsWith(t, 0, promised)
}

func TestUnreadablePolicyIsFault(t *testing.T) {
	here := newPlace(t)
	p := start(t, append(here.environ, "NSM_REGISTRY_CLIENT_POLICIES="+filepath.Dir(here.agent)+"/loop.*")...)
	p.says(t, "no policy file matches")
	p.cancel()
	p.endsWith(t, 0, promised)

	loop := filepath.Join(filepath.Dir(here.agent), "loop.rego")
	require.NoError(t, os.Symlink(loop, loop))
	p = start(t, append(here.environ, "NSM_REGISTRY_CLIENT_POLICIES="+filepath.Dir(here.agent)+"/loop.*")...)
	p.endsWith(t, 1, wait)
	require.Contains(t, p.logs.String(), "app: authz: policies ")
}

func TestTelemetryHoldsNothingUp(t *testing.T) {
	t.Setenv("TELEMETRY", "true")
	here := newPlace(t)
	here.serveAgent(t)
	collector, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	require.NoError(t, err)
	defer func() { _ = collector.Close() }()
	p := start(t, append(here.environ, "TELEMETRY=true", "NSM_OPEN_TELEMETRY_ENDPOINT="+collector.Addr().String(),
		"NSM_PPROF_ENABLED=true", "NSM_PPROF_LISTEN_ON="+collector.Addr().String())...)
	p.says(t, "app: going on without: telemetry: profiles: ")
	p.says(t, "Startup completed in ")
	require.NoError(t, check(t, here.dial(t, "unix://"+here.listener, here.ca)), "which makes a span")
	p.cancel()
	p.endsWith(t, 0, promised)
}

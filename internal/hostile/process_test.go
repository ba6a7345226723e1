package hostile_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/stockproxy"
)

const (
	// startTime bounds the start of a process, which takes a fraction of it.
	startTime = 20 * time.Second
	// answerTime is what every call is answered in, whatever it brings: a third of what
	// the SDK gives a caller's try.
	answerTime = 5 * time.Second
	// tick is the pause between looks at something that is waited for.
	tick = 50 * time.Millisecond
)

// process is a proxy under test.
type process struct {
	*proc.Process
	*neighbours
	addr, pprof, log string
}

// build makes the program from the module's root.
func build(t *testing.T, race bool) string {
	out := filepath.Join(t.TempDir(), "proxy")
	args := []string{"build", "-o", out}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, ".")...)
	cmd.Dir = filepath.Join("..", "..")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// start runs the proxy and waits until it serves.
func start(t *testing.T, n *neighbours, path string, args ...string) *process {
	return startWith(t, n, nil, path, args...)
}

// startWith has more in its environment.
func startWith(t *testing.T, n *neighbours, env []string, path string, args ...string) *process {
	p := &process{neighbours: n, addr: freeAddr(t), pprof: freeAddr(t), log: filepath.Join(t.TempDir(), "log")}
	child, err := proc.Start(&proc.Spec{
		Name: "proxy", Path: path, Args: args, Log: p.log,
		Env: append([]string{
			"SPIFFE_ENDPOINT_SOCKET=" + n.agent,
			"NSM_LISTEN_ON=tcp://" + p.addr,
			"NSM_REGISTRY_URL=tcp://" + n.registry,
			"NSM_REGISTRY_PROXY_URL=tcp://" + n.registry,
			"NSM_MAP_IP_FILE_PATH=" + filepath.Join(n.dir, "map-ip.yaml"),
			// Without policies what is malformed gets as far as it can.
			"NSM_REGISTRY_SERVER_POLICIES=", "NSM_REGISTRY_CLIENT_POLICIES=",
			"NSM_PPROF_ENABLED=true", "NSM_PPROF_LISTEN_ON=" + p.pprof,
		}, env...),
	})
	require.NoError(t, err)
	t.Cleanup(child.Stop)
	p.Process = child
	conn := p.dial(t, p.addr)
	require.Eventually(t, func() bool { return p.dead() || serving(t.Context(), conn) }, startTime, tick)
	require.False(t, p.dead(), "%s", p.Tail(20))
	require.NoError(t, conn.Close())
	return p
}

func startStock(t *testing.T, n *neighbours) *process {
	self, err := os.Executable()
	require.NoError(t, err)
	return start(t, n, self, stockproxy.Command)
}

// freeAddr finds an address for a process that is started right after.
func freeAddr(t *testing.T) string {
	addr, err := proc.FreeAddress()
	require.NoError(t, err)
	return addr
}

func (p *process) dead() bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// endsWithin waits a while for the end of the process.
func (p *process) endsWithin(d time.Duration) bool {
	select {
	case <-p.Done():
		return true
	case <-time.After(d):
		return false
	}
}

func serving(ctx context.Context, conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	return err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
}

// connect requests a connection and closes it again.
func connect(ctx context.Context, conn *grpc.ClientConn, number string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	client := networkservice.NewNetworkServiceClient(conn)
	answer, err := client.Request(ctx, goodRequest(number))
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if _, err := client.Close(ctx, answer); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// requireWell requires that the process is sound and takes connections.
func (p *process) requireWell(t *testing.T) {
	t.Helper()
	p.requireSound(t)
	conn := p.dial(t, p.addr, p.tokens())
	defer func() { _ = conn.Close() }()
	require.NoError(t, connect(t.Context(), conn, "well"))
}

// requireSound requires that the process is the one that was started, serves, and
// has had no panic and no race.
func (p *process) requireSound(t *testing.T) {
	t.Helper()
	require.False(t, p.dead(), "the process has ended:\n%s", p.Tail(40))
	conn := p.dial(t, p.addr, p.tokens())
	defer func() { _ = conn.Close() }()
	require.True(t, serving(t.Context(), conn))
	log, err := os.ReadFile(p.log)
	require.NoError(t, err)
	for _, bad := range []string{"panic in", "panic:", "DATA RACE"} {
		if at := bytes.Index(log, []byte(bad)); at >= 0 {
			require.Fail(t, "the process has said "+bad, "%s", log[at:min(at+4000, len(log))])
		}
	}
}

// goroutines returns how many the process has.
func (p *process) goroutines(ctx context.Context) (int, error) {
	var count int
	err := p.profile(ctx, "goroutine?debug=1", func(r io.Reader) error {
		_, err := fmt.Fscanf(bufio.NewReader(r), "goroutine profile: total %d", &count)
		return err
	})
	return count, err
}

// collect has the process collect its garbage.
func (p *process) collect(ctx context.Context) error {
	return p.profile(ctx, "heap?gc=1", func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
}

func (p *process) profile(ctx context.Context, what string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.pprof+"/debug/pprof/"+what, http.NoBody)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return read(response.Body)
}

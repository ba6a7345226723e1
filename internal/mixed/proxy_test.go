package mixed

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
)

const (
	// patience bounds what takes a second at most on a machine that is idle.
	patience = 40 * time.Second
	// tail is how much of a proxy's log is shown after a failure.
	tail = 60
)

// soon is the pause between attempts at a proxy.
var soon = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond}

// proxy is a process of either kind. It keeps its name and its address when
// another one takes its place.
type proxy struct {
	name   string
	addr   string
	domain *domain
	env    []string
	child  *proc.Process
}

// newProxy prepares a proxy of the domain.
func newProxy(t testing.TB, d *domain, name string, env ...string) *proxy {
	t.Helper()
	addr, err := proc.FreeAddress()
	require.NoError(t, err)
	p := &proxy{name: name, addr: addr, domain: d}
	addresses := filepath.Join(d.dir, name+".yaml")
	require.NoError(t, os.WriteFile(addresses, []byte(inside+": "+outside+"\n"), 0o600))
	p.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR"),
		"SPIFFE_ENDPOINT_SOCKET=" + d.agent.Addr(),
		"NSM_NAME=" + name,
		"NSM_LISTEN_ON=tcp://" + p.addr,
		"NSM_REGISTRY_URL=tcp://" + d.at,
		"NSM_REGISTRY_PROXY_URL=tcp://" + d.at,
		"NSM_MAP_IP_FILE_PATH=" + addresses,
		"NSM_MAX_TOKEN_LIFETIME=" + tokenTime.String(),
	}, env...)
	t.Cleanup(func() {
		if p.child == nil {
			return
		}
		p.child.Stop()
		if t.Failed() {
			t.Logf("%s:\n%s", p.name, p.child.Tail(tail))
		}
	})
	return p
}

// start runs a proxy of that kind and waits until it serves.
func (p *proxy) start(t testing.TB, kind string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p.child, err = proc.Start(&proc.Spec{
		Name: kind, Path: self, Args: []string{kind}, Env: p.env,
		Dir: p.domain.dir, Log: filepath.Join(p.domain.dir, p.name+".log"), Append: true,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(p.domain.dial(t, p.addr)).Check(ctx, new(grpc_health_v1.HealthCheckRequest), grpc.WaitForReady(true))
	require.NoError(t, err, p.child.Tail(tail))
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
}

// swap puts a proxy of that kind in the place of the one that runs.
func (p *proxy) swap(t testing.TB, kind string) {
	t.Helper()
	p.child.Stop()
	p.start(t, kind)
}

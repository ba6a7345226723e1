package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
)

// proxyService is the name under which a domain's proxy is looked up.
const proxyService = "nsmgr-proxy"

// What our proxy logs of its hops, and of the monitor streams on them, with the
// id of its segment.
const (
	connectedText = "] connected ("
	lostText      = "monitor stream lost"
	resumedText   = "monitor stream resumed"
)

var (
	segmentText = regexp.MustCompile(`\[connection:([^\]]+)\]`)
	hopText     = regexp.MustCompile(`\[hop:([^\]]+)\]`)
)

// proxyProcess is an nsmgr-proxy: what it is started with, and what runs.
type proxyProcess struct {
	spec  proc.Spec
	child *proc.Process
	// killed is set before the child is killed on purpose.
	killed *atomic.Bool
}

// prepareProxy makes what the nsmgr-proxy of a domain needs: an identity from a
// Workload API, as it has in a cluster, and its settings.
func (l *lab) prepareProxy(number int) error {
	d := l.domains[number]
	name := fmt.Sprintf("nsmgr-proxy-%d", number+1)
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	const svidLifetime = 23 * time.Hour // the CA's is 24 h
	workload, err := identitytest.ServeWorkloadAPI(filepath.Join(dir, "workload.sock"), d.CA, "nsmgr-proxy",
		identitytest.WithTTL(svidLifetime), identitytest.WithFederated(d.Federated...))
	if err != nil {
		return err
	}
	l.workloads = append(l.workloads, workload)

	mapFile := filepath.Join(dir, "map-ip.yaml")
	mapText := fmt.Sprintf("%s: %s\n", d.Inside(), d.Outside())
	if err = os.WriteFile(mapFile, []byte(mapText), 0o600); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	env := append(passedOn(os.Environ()),
		"SPIFFE_ENDPOINT_SOCKET="+workload.Addr(),
		"TELEMETRY=false",
		"NSM_NAME="+name,
		"NSM_LISTEN_ON="+d.ProxyURL.String(),
		"NSM_REGISTRY_URL="+d.RegistryURL.String(),
		"NSM_REGISTRY_PROXY_URL="+d.RegistryProxyURL.String(),
		"NSM_MAP_IP_FILE_PATH="+mapFile,
		"NSM_MAX_TOKEN_LIFETIME="+d.TokenLifetime.String(),
		"NSM_LOG_LEVEL="+l.options.proxyLevel(),
	)
	if interval, ok := l.options.proxyProbe(); ok {
		env = append(env, "NSM_HOP_PROBE_INTERVAL="+interval.String())
	}
	l.proxies[number] = &proxyProcess{spec: proc.Spec{
		Name:   name,
		Path:   l.options.ProxyPath,
		Args:   l.options.ProxyArgs,
		Env:    env,
		Dir:    dir,
		Log:    filepath.Join(l.logDir, name+".log"),
		OnLine: func(line string) { l.heard(number, line) },
	}}
	return nil
}

// startProxy starts the process, again if it was killed. If it ends by itself,
// the run does.
func (l *lab) startProxy(number int) error {
	p := l.proxies[number]
	child, err := proc.Start(&p.spec)
	if err != nil {
		return err
	}
	killed := new(atomic.Bool)
	p.child, p.killed, p.spec.Append = child, killed, true
	l.wg.Go(func() {
		select {
		case <-child.Done():
			if !killed.Load() {
				l.cancel(child.Err())
			}
		case <-l.ctx.Done():
		}
	})
	return nil
}

// killProxy ends the process without a word.
func (l *lab) killProxy(number int) {
	p := l.proxies[number]
	p.killed.Store(true)
	p.child.Kill()
}

// heard takes a line of a proxy's log.
func (l *lab) heard(number int, line string) {
	segment, hop := field(segmentText, line), field(hopText, line)
	switch {
	case strings.Contains(line, connectedText):
		if number == 0 {
			l.book.Moved(hop)
		}
	case strings.Contains(line, lostText):
		l.book.StreamLost(number, hop, segment)
	case strings.Contains(line, resumedText):
		l.book.StreamFound(segment)
		if number == 0 {
			l.book.Resumed(time.Now())
			l.say(ledger.Proxy, "RESUMED", "", outerHop, "said in its log")
		}
	}
}

// field returns what the first group of the expression matches.
func field(expression *regexp.Regexp, line string) string {
	if match := expression.FindStringSubmatch(line); match != nil {
		return match[1]
	}
	return ""
}

// passedOn keeps what a process needs of our environment, and no NSM_* setting.
func passedOn(environ []string) []string {
	keep := []string{"PATH=", "HOME=", "TMPDIR=", "GOCOVERDIR="}
	return slices.DeleteFunc(environ, func(entry string) bool {
		return !slices.ContainsFunc(keep, func(key string) bool { return strings.HasPrefix(entry, key) })
	})
}

// awaitProxy waits until a proxy answers a health check over mutual TLS.
func (l *lab) awaitProxy(ctx context.Context, number int) error {
	id, err := l.domains[number].Identity("lab")
	if err != nil {
		return err
	}
	cc, err := grpc.NewClient("passthrough:///"+l.domains[number].ProxyURL.Host, id.DialOptions()...)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	defer func() { _ = cc.Close() }()
	const between = 50 * time.Millisecond
	for {
		answer, err := healthpb.NewHealthClient(cc).Check(ctx, new(healthpb.HealthCheckRequest), grpc.WaitForReady(true))
		if err == nil && answer.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nsmgr-proxy-%d does not serve: %w", number+1, err)
		}
		if err := l.sleep(between); err != nil {
			return err
		}
	}
}

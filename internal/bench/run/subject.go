package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/floor"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/stockproxy"
)

// Subject is what is measured.
type Subject string

const (
	// Floor is the least that a proxy can do.
	Floor Subject = "floor"
	// Stock is the SDK's own chain.
	Stock Subject = "stock"
	// Ours is the nsmgr-proxy of this tree.
	Ours Subject = "ours"
)

// Subjects are all of them, in the order in which they run.
func Subjects() []Subject { return []Subject{Floor, Stock, Ours} }

// startTime bounds the start of a process on a busy machine.
const startTime = 30 * time.Second

// Programs are the binaries.
type Programs struct {
	Ours string // the nsmgr-proxy
	Self string // the harness, which is floor and stock if told so
}

// child is a proxy that runs.
type child struct {
	*proc.Process
	profiles string // host:port of /debug/pprof/
}

// start starts a subject and waits until it serves.
func start(ctx context.Context, options *Options, around *neighbours.Neighbours, dir string) (*child, error) {
	subject, programs := options.Subject, &options.Programs
	profiles, err := proc.FreeAddress()
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	c := &child{profiles: profiles}
	mapFile := filepath.Join(dir, "map-ip.yaml")
	if err = os.WriteFile(mapFile, []byte("10.0.1.9: 203.0.113.9\n"), 0o600); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	spec := &proc.Spec{
		Name: string(subject),
		Path: programs.Self,
		Env: append(passedOn(os.Environ()),
			"SPIFFE_ENDPOINT_SOCKET="+around.WorkloadAPI,
			floor.ListenVariable+"="+around.Proxy,
			floor.UpstreamVariable+"="+around.Far,
			"TELEMETRY=false",
			"NSM_NAME=nsmgr-proxy",
			"NSM_LISTEN_ON=tcp://"+around.Proxy,
			"NSM_REGISTRY_URL=tcp://"+around.Registry,
			"NSM_REGISTRY_PROXY_URL=tcp://"+around.RegistryProxy,
			"NSM_MAP_IP_FILE_PATH="+mapFile,
			"NSM_LOG_LEVEL=INFO",
			"NSM_PPROF_ENABLED=true",
			"NSM_PPROF_LISTEN_ON="+c.profiles,
		),
		Dir: dir,
		Log: filepath.Join(dir, "log"),
	}
	if options.Limit != "" {
		spec.Env = append(spec.Env, "GOMEMLIMIT="+options.Limit)
	}
	switch subject {
	case Floor:
		spec.Args = []string{floor.Command}
	case Stock:
		spec.Args = []string{stockproxy.Command}
	case Ours:
		spec.Path = programs.Ours
	}
	if c.Process, err = proc.Start(spec); err != nil {
		return nil, err
	}
	if err = c.await(ctx, around); err != nil {
		c.Kill()
		return nil, fmt.Errorf("%w\n%s", err, c.Tail(5))
	}
	return c, nil
}

// passedOn keeps what a process needs of our environment, what sets the limits
// of its memory, and no other setting.
func passedOn(environ []string) []string {
	keep := []string{"PATH=", "HOME=", "TMPDIR=", "GOCOVERDIR=", "GOMEMLIMIT=", "GOGC=", "GOMAXPROCS=", "GODEBUG="}
	return slices.DeleteFunc(environ, func(entry string) bool {
		return !slices.ContainsFunc(keep, func(key string) bool { return strings.HasPrefix(entry, key) })
	})
}

// await waits until the proxy answers a health check and serves profiles.
func (c *child) await(ctx context.Context, around *neighbours.Neighbours) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	cc, err := grpc.NewClient("passthrough:///"+around.Proxy, around.Downstream.DialOptions(new(atomic.Int64))...)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	defer func() { _ = cc.Close() }()
	const between = 20 * time.Millisecond
	ticker := time.NewTicker(between)
	defer ticker.Stop()
	for {
		_, err = healthpb.NewHealthClient(cc).Check(ctx, new(healthpb.HealthCheckRequest))
		if err == nil {
			return c.collect(ctx)
		}
		cc.ResetConnectBackoff()
		select {
		case <-ticker.C:
		case <-c.Done():
			return c.Err()
		case <-ctx.Done():
			return fmt.Errorf("run: %s does not serve: %w", c.Name(), err)
		}
	}
}

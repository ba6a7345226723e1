package app

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/networkservicemesh/sdk/pkg/tools/tracing"
	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/admit"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/authz"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/config"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/memory"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/telemetry"
)

// run is the process from its configuration on: logs, telemetry, identity,
// listeners, proxy, in this order, and back in the reverse one.
func run(ctx context.Context, c *config.Config, warnings []string, logs io.Writer) error {
	started := time.Now()
	ctx, stopLogs := telemetry.Logs(ctx, command, c.LogLevel, logs)
	defer stopLogs()
	logger := log.FromContext(ctx)
	logger.Infof("%s %s", command, version())
	for _, w := range warnings {
		logger.Warn(w)
	}

	options, gate, err := newAuthorization(ctx, c)
	if err != nil {
		return err
	}

	// Telemetry comes before what may wait for others, so that a process that
	// waits can be looked into.
	defer startTelemetry(ctx, c)()

	id, err := identity.Open(ctx, c.SPIFFEEndpointSocket)
	if err != nil {
		if ctx.Err() != nil {
			logger.Infof("app: told to end before it had an identity: %v", err)
			return nil
		}
		return err
	}
	defer func() { _ = id.Close() }()

	// Listening comes before the chain is made, which has to know the port.
	listeners, err := listen(c.ListenOn)
	if err != nil {
		return err
	}

	admission := newAdmission(logger)

	var background sync.WaitGroup
	server := grpc.NewServer(serverOptions(id, c, admission)...)
	return serve(ctx, server, listeners, &background, func(ctx context.Context) {
		tokens := id.TokenGenerator(c.MaxTokenLifetime)
		options = append(options,
			nsmgrproxy.WithName(c.Name),
			nsmgrproxy.WithListenOn(publicURL(ctx, listeners)),
			nsmgrproxy.WithDialOptions(dialOptions(id, c, tokens)...),
			nsmgrproxy.WithMapIPFilePath(c.MapIPFilePath),
			nsmgrproxy.WithMonitorGrace(c.MonitorGrace, c.MonitorLocalGrace),
			nsmgrproxy.WithDialTimeout(c.DialTimeout),
			nsmgrproxy.WithHopProbeInterval(c.HopProbeInterval),
			nsmgrproxy.WithHopMaxBackoff(c.HopMaxBackoff),
			nsmgrproxy.WithGate(authz.NewGate(gate, tokens)),
			nsmgrproxy.WithIdentity(id, c.MaxTokenLifetime),
			nsmgrproxy.WithWaitGroup(&background),
			nsmgrproxy.WithRoom(admission),
		)
		proxy := nsmgrproxy.NewServer(ctx, c.RegistryURL, c.RegistryProxyURL, tokens, options...)
		proxy.Register(server)
		measure(ctx, proxy)
		logger.Infof("Startup completed in %v, SVID: %q", time.Since(started), id.ID())
	})
}

// newAdmission also tells the Go runtime of the memory that there is.
func newAdmission(logger log.Logger) *admit.Admission {
	memory.CollectEarlier()
	limit := memory.Limit()
	if limit > 0 {
		logger.Infof("app: the memory limit is %d MiB", limit>>20)
	}
	return admit.New(limit, guard.NewLog(logger))
}

// measure has what the proxy knows exported, if anything is.
func measure(ctx context.Context, proxy nsmgr.Nsmgr) {
	if err := nsmgrproxy.Measure(ctx, proxy, otel.Meter(command)); err != nil {
		log.FromContext(ctx).Errorf("app: going on without: %v", err)
	}
}

func serverOptions(id *identity.Source, c *config.Config, admission *admit.Admission) []grpc.ServerOption {
	options := append(tracing.WithTracing(), nsmgrproxy.ServerOptions()...)
	options = append(options, admission.ServerOptions()...)
	return append(options, grpc.Creds(admission.Credentials(id.ServerCredentials(c.TrustDomains...))))
}

// dialOptions neither block nor make calls wait for a connection: an attempt has
// its own deadline and its own retry behind it, and a caller's patience is not
// to be spent on it.
func dialOptions(id *identity.Source, c *config.Config, tokens token.GeneratorFunc) []grpc.DialOption {
	return append(tracing.WithTracingDial(),
		grpc.WithTransportCredentials(id.ClientCredentials(c.TrustDomains...)),
		grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(tokens)), grpc.ForceCodecV2(admit.NewCodec())),
	)
}

// startTelemetry returns what ends it. The process is worth more than what it
// tells about itself, so a fault is logged and nothing more.
func startTelemetry(ctx context.Context, c *config.Config) (stop func()) {
	var stops []func()
	started := func(stop func(), err error) {
		if err != nil {
			log.FromContext(ctx).Errorf("app: going on without: %v", err)
			return
		}
		stops = append(stops, stop)
	}
	if c.Telemetry {
		started(telemetry.Export(ctx, c.Name, c.OpenTelemetryEndpoint, c.MetricsExportInterval))
	}
	if c.PprofEnabled {
		started(telemetry.Profiles(ctx, c.PprofListenOn))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

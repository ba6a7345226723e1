package telemetry

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/opentelemetry"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/metric"
)

// flushTimeout is how long the last traces and metrics may take together. Kill
// follows SIGTERM after 30 s by default, and connections are to be ended in
// that time, too.
const flushTimeout = 3 * time.Second

// Export sends traces and metrics to the collector at endpoint (host:port),
// metrics every interval (0: OpenTelemetry's default). It does not wait for the
// collector. stop sends what is left, for three seconds at most. The error is
// about the endpoint's form or OTEL_* variables.
//
// It does nothing unless TELEMETRY is true in the process's environment, since
// the SDK's elements look there. The exporters are made here because the SDK's
// wait for the collector without a deadline, or end the process.
func Export(ctx context.Context, service, endpoint string, interval time.Duration) (stop func(), err error) {
	if !opentelemetry.IsEnabled() {
		return func() {}, nil
	}
	// Sending the rest must not fail because the process is ending.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	traces, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(endpoint))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("telemetry: traces to %q: %w", endpoint, err)
	}
	metrics, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithInsecure(), otlpmetricgrpc.WithEndpoint(endpoint))
	if err != nil {
		_ = traces.Shutdown(ctx)
		cancel()
		return nil, fmt.Errorf("telemetry: metrics to %q: %w", endpoint, err)
	}
	otel.SetErrorHandler(&failures{logger: log.FromContext(ctx)})
	providers := opentelemetry.Init(ctx, traces, metric.NewPeriodicReader(metrics, metric.WithInterval(interval)), service)
	return func() {
		timer := time.AfterFunc(flushTimeout, cancel)
		defer timer.Stop()
		defer cancel()
		_ = providers.Close() // it logs its errors and returns none
		// Out of time the provider leaves the exporter to a goroutine that
		// tries for half a minute more; the exporter's own end ends that.
		_ = traces.Shutdown(ctx)
	}, nil
}

// failures says once that exporting fails. OpenTelemetry would print each
// failure, every few seconds while there is no collector.
type failures struct {
	logger log.Logger
	said   atomic.Bool
}

// Handle implements otel.ErrorHandler.
func (f *failures) Handle(err error) {
	if f.said.CompareAndSwap(false, true) {
		f.logger.Infof("telemetry: export failed, further failures are logged at DEBUG: %v", err)
		return
	}
	f.logger.Debugf("telemetry: export failed: %v", err)
}

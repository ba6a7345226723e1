package telemetry_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/telemetry"
)

// wait bounds what takes milliseconds.
const wait = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buffer may be written to and read at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) count(part string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), part)
}

func logs(t *testing.T, level logrus.Level) (context.Context, *buffer) {
	out := &buffer{}
	ctx, stop := telemetry.Logs(t.Context(), "proxy", level, out)
	t.Cleanup(func() {
		stop()
		logrus.SetOutput(io.Discard)
	})
	return ctx, out
}

func TestLogsLevelFollowsSignals(t *testing.T) {
	ctx, out := logs(t, logrus.InfoLevel)
	logger := log.FromContext(ctx)
	signal := func(s syscall.Signal, said string) {
		before := out.count(said)
		require.NoError(t, syscall.Kill(syscall.Getpid(), s))
		require.Eventually(t, func() bool { return out.count(said) == before+1 }, wait, time.Millisecond)
	}
	logger.Debug("one")
	logger.Info("two")
	require.Zero(t, out.count("one"))
	require.Equal(t, 1, out.count("[cmd:proxy] two"))

	signal(syscall.SIGUSR1, "log level is trace")
	logger.Trace("three")
	require.Equal(t, 1, out.count("three"))

	signal(syscall.SIGUSR2, "log level is info")
	logger.Debug("four")
	require.Zero(t, out.count("four"))
	require.False(t, log.IsTracingEnabled(), "whole requests are not logged")
}

// collect starts a collector that counts exports by the end of their method.
func collect(t *testing.T) (addr string, count func(method string) int) {
	var mu sync.Mutex
	calls := map[string]int{}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		name, _ := grpc.MethodFromServerStream(stream)
		mu.Lock()
		calls[name]++
		mu.Unlock()
		return stream.SendMsg(&emptypb.Empty{})
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // an error if Stop is faster
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener.Addr().String(), func(method string) int {
		mu.Lock()
		defer mu.Unlock()
		return calls[method]
	}
}

const (
	traceExport  = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	metricExport = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
)

func measure(t *testing.T) {
	_, span := otel.Tracer("test").Start(t.Context(), "span")
	span.End()
	counter, err := otel.Meter("test").Int64Counter("counter")
	require.NoError(t, err)
	counter.Add(t.Context(), 1)
}

func TestExportSendsTheRestThoughTheProcessIsEnding(t *testing.T) {
	t.Setenv("TELEMETRY", "true")
	addr, count := collect(t)
	ctx, _ := logs(t, logrus.InfoLevel)
	ctx, cancel := context.WithCancel(ctx)
	stop, err := telemetry.Export(ctx, "proxy", addr, time.Hour)
	require.NoError(t, err)
	measure(t)
	cancel()
	stop()
	require.Equal(t, 1, count(traceExport))
	require.Equal(t, 1, count(metricExport))
}

func TestExportWithoutCollectorHoldsNothingUp(t *testing.T) {
	t.Setenv("TELEMETRY", "true")
	// It takes connections, but nobody ever reads them.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	ctx, out := logs(t, logrus.InfoLevel)

	started := time.Now()
	stop, err := telemetry.Export(ctx, "proxy", listener.Addr().String(), 10*time.Millisecond)
	require.NoError(t, err)
	require.Less(t, time.Since(started), time.Second)
	measure(t)
	stopping := time.Now()
	stop()
	require.Less(t, time.Since(stopping), 4*time.Second)
	require.LessOrEqual(t, out.count("telemetry: export failed"), 1)
}

func TestExportIsOffByDefault(t *testing.T) {
	t.Setenv("TELEMETRY", "")
	addr, count := collect(t)
	stop, err := telemetry.Export(t.Context(), "proxy", addr, time.Millisecond)
	require.NoError(t, err)
	measure(t)
	stop()
	require.Zero(t, count(traceExport)+count(metricExport))
}

func TestProfiles(t *testing.T) {
	ctx, out := logs(t, logrus.InfoLevel)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	_, err = telemetry.Profiles(ctx, addr)
	require.ErrorContains(t, err, "telemetry: profiles: ")
	require.NoError(t, listener.Close())

	stop, err := telemetry.Profiles(ctx, addr)
	require.NoError(t, err)
	require.Equal(t, 1, out.count("telemetry: profiles at http://"+addr+"/debug/pprof/"))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: wait}
	answer, err := client.Get("http://" + addr + "/debug/pprof/goroutine?debug=1")
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Contains(t, string(body), "goroutine profile")
	for _, name := range []string{"mutex", "block"} {
		for query, want := range map[string]int{"": http.StatusBadRequest, "?seconds=1": http.StatusOK} {
			answer, err = client.Get("http://" + addr + "/debug/pprof/" + name + query)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, want, answer.StatusCode, "%s%s", name, query)
		}
	}
	require.Zero(t, runtime.SetMutexProfileFraction(-1), "recorded only while it is asked for")
	stop()
	_, err = client.Get("http://" + addr + "/debug/pprof/")
	require.Error(t, err)
	require.Zero(t, out.count("[ERRO"))
}

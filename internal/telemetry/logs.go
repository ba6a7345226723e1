// Package telemetry sets up what the process tells about itself: logs, traces
// and metrics for OpenTelemetry, profiles.
//
// Under failure: nothing here keeps the process from starting or from ending. A
// collector that is missing is tried again in the background; what it cannot
// take at the end is given up after a few seconds.
//
// Logs, tracers and meters are global in the libraries underneath, so one
// process can have one set-up at a time.
package telemetry

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/log/logruslogger"
	"github.com/sirupsen/logrus"
)

// Logs sends all logs from level on to out, and returns a context whose logger
// writes there, each line marked with command. SIGUSR1 changes the level to
// TRACE, SIGUSR2 back to level. stop ends that and waits for it.
//
// The SDK's own tracing stays off: it logs whole requests, tokens included.
func Logs(ctx context.Context, command string, level logrus.Level, out io.Writer) (_ context.Context, stop func()) {
	logrus.SetOutput(out)
	logrus.SetLevel(level)
	ctx = log.WithLog(ctx, logruslogger.New(ctx, logrus.Fields{"cmd": command}))

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for received := range signals {
			to := level
			if received == syscall.SIGUSR1 {
				to = logrus.TraceLevel
			}
			logrus.SetLevel(to)
			log.FromContext(ctx).Infof("telemetry: %s: log level is %s", received, to)
		}
	}()
	return ctx, func() {
		// After Stop nothing is sent any more, so the channel may be closed.
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

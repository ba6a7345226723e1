package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
)

// headerTimeout ends connections that send no request. There is no timeout for
// answers: a CPU profile takes the time it was asked for, 30 s by default.
const headerTimeout = 10 * time.Second

// Profiles serves /debug/pprof/ over HTTP at addr (host:port) until stop, which
// cuts profiles that are being taken and waits.
func Profiles(ctx context.Context, addr string) (stop func(), err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("telemetry: profiles: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}

	logger := log.FromContext(ctx)
	logger.Infof("telemetry: profiles at http://%s/debug/pprof/", listener.Addr())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Errorf("telemetry: profiles: %v", err)
		}
	}()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
)

// headerTimeout ends connections that send no request. There is no timeout for
// answers: a CPU profile takes the time it was asked for, 30 s by default.
const headerTimeout = 10 * time.Second

const (
	// mutexFraction is how many times a lock is waited for until one is recorded.
	mutexFraction = 5
	// blockRate is how long, in ns, goroutines have to wait until one is recorded:
	// less than a refresh spends on anything that shows in its latency.
	blockRate = 10_000
)

// Profiles serves /debug/pprof/ over HTTP at addr (host:port) until stop, which
// cuts profiles that are being taken and waits.
//
// Waiting for locks (mutex) and in general (block) is recorded only while somebody
// asks for it with ?seconds=, for it costs the process something.
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
	setFraction := func(rate int) { _ = runtime.SetMutexProfileFraction(rate) }
	mux.Handle("/debug/pprof/mutex", &recorded{name: "mutex", set: setFraction, rate: mutexFraction})
	mux.Handle("/debug/pprof/block", &recorded{name: "block", set: runtime.SetBlockProfileRate, rate: blockRate})
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

// recorded is a profile for which the process has to keep records. It keeps them
// while requests with ?seconds= are being answered, and those of others are refused:
// they would get an empty profile and take it for good news.
type recorded struct {
	name string
	set  func(rate int)
	rate int

	mu    sync.Mutex
	users int // guarded by mu
}

// ServeHTTP implements http.Handler.
func (p *recorded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("seconds") == "" {
		http.Error(w, "telemetry: say for how long, as in "+p.name+"?seconds=10", http.StatusBadRequest)
		return
	}
	p.use(1)
	defer p.use(-1)
	pprof.Handler(p.name).ServeHTTP(w, r)
}

func (p *recorded) use(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users += n
	if p.users > 0 {
		p.set(p.rate)
	} else {
		p.set(0)
	}
}

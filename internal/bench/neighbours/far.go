package neighbours

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// FarCommand is the argument that makes the harness's binary run the far side.
const FarCommand = "far"

// controlVariable holds the path of the socket at which the far side is asked, beside
// the address of its Workload API.
const controlVariable = "FAR_CONTROL"

// headerTimeout ends connections to the control socket that ask for nothing.
const headerTimeout = 10 * time.Second

// RunFar serves the far side until ctx ends: gRPC at a port of its own, and over HTTP
// at the control socket what the harness wants to know and do.
func RunFar(ctx context.Context) error {
	id, err := identity.Open(ctx, os.Getenv("SPIFFE_ENDPOINT_SOCKET"))
	if err != nil {
		return fmt.Errorf("far: %w", err)
	}
	defer func() { _ = id.Close() }()
	conns, err := listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	var handshakes atomic.Int64
	far, server := lbtest.NewFar(), grpc.NewServer(
		grpc.Creds(&counting{id.ServerCredentials(), &handshakes}), grpc.ReadBufferSize(buffer), grpc.WriteBufferSize(buffer))
	far.Register(server)
	control, err := net.Listen("unix", os.Getenv(controlVariable))
	if err != nil {
		_ = conns.Close()
		return fmt.Errorf("far: %w", err)
	}
	web := &http.Server{Handler: controls(far, conns, &handshakes), ReadHeaderTimeout: headerTimeout}

	ended := make(chan error)
	go func() { ended <- server.Serve(conns) }()
	go func() { ended <- web.Serve(control) }()
	stop := context.AfterFunc(ctx, func() {
		server.Stop()
		_ = web.Close()
	})
	defer stop()
	err = <-ended
	server.Stop()
	_ = web.Close()
	for _, end := range []error{err, <-ended} {
		// Whichever was first, the other one has been ended.
		if end != nil && !errors.Is(end, grpc.ErrServerStopped) && !errors.Is(end, http.ErrServerClosed) {
			return fmt.Errorf("far: %w", end)
		}
	}
	return nil
}

// controls are what the harness can ask for.
func controls(far *lbtest.Far, conns *countingListener, handshakes *atomic.Int64) http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, with func(r *http.Request) any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(with(r)) })
	}
	answer("/addr", func(*http.Request) any { return conns.Addr().String() })
	answer("/counts", func(*http.Request) any {
		counts := Counts{Handshakes: handshakes.Load()}
		counts.Connections, counts.Open = conns.counts()
		counts.Watched, counts.Opened = far.Streams()
		return counts
	})
	answer("/cut", func(*http.Request) any { return conns.cut() })
	answer("/watched", func(r *http.Request) any {
		after := []time.Duration{}
		then, err := time.Parse(time.RFC3339Nano, r.FormValue("after"))
		if err != nil {
			return after
		}
		for _, at := range far.OpenedAfter(then) {
			after = append(after, at.Sub(then))
		}
		return after
	})
	return mux
}

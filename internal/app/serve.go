package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc"
)

const (
	// stopTimeout bounds the end of calls and of what runs in the background,
	// both counted from the same moment. With the flush of telemetry behind it
	// the process ends in under ten seconds.
	stopTimeout = 5 * time.Second
	// cutTimeout bounds closing the connections of those who did not let go. It
	// takes no longer than a handler that ignores its context lets it.
	cutTimeout = time.Second
)

// serve registers services on server, serves them on all listeners until ctx
// ends or a listener fails, and then stops. The context that register gets ends
// first: monitor streams end by it, before their connections are closed. The
// error is that of a listener.
func serve(
	ctx context.Context, server *grpc.Server, listeners []net.Listener, background *sync.WaitGroup, register func(context.Context),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	register(ctx)

	var serving sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		serving.Go(func() {
			if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				failed <- fmt.Errorf("app: serve %s: %w", l.Addr(), err)
			}
		})
	}
	var failure error
	select {
	case <-ctx.Done():
		log.FromContext(ctx).Infof("app: stopping: %v", context.Cause(ctx))
	case failure = <-failed:
	}
	cancel()
	stop(ctx, server, &serving, background)
	return failure
}

// stop lets calls end, and then does not. Even grpc's hard stop can wait for
// others, for a handshake that a peer does not go on with, so nothing here is
// waited for without a deadline.
func stop(ctx context.Context, server *grpc.Server, serving, background *sync.WaitGroup) {
	logger := log.FromContext(ctx)
	started := time.Now()
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()

	calls := async(func() {
		server.GracefulStop()
		serving.Wait()
	})
	rest := async(background.Wait)
	if !ended(deadline, calls) {
		logger.Warnf("app: calls did not end in %s, their connections are cut", stopTimeout)
		cut, cancelCut := context.WithTimeout(context.WithoutCancel(ctx), cutTimeout)
		defer cancelCut()
		async(server.Stop)
		ended(cut, calls)
	}
	if !ended(deadline, rest) {
		logger.Warnf("app: background work did not end in %s", stopTimeout)
	}
	logger.Infof("app: stopped in %v", time.Since(started))
}

// async runs f, which may never return, in a goroutine of its own. The process
// ends with it.
func async(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// ended waits for done until deadline ends and says whether it came.
func ended(deadline context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-deadline.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

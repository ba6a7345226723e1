// Package run measures one proxy: it starts it among its neighbours, puts a load
// on it, and reads what its process has used.
//
// A Request that fails is part of the result. What makes a run impossible, such
// as a proxy that does not start or ends, is an error. Everything that a run
// starts has ended when it returns.
package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
)

// Options describe a run.
type Options struct {
	Subject  Subject
	Role     neighbours.Role
	Mode     load.Mode
	Legs     int
	Rounds   int // of refreshes, at least one; none in a storm
	Storm    Storm
	Limit    string // GOMEMLIMIT for the proxy, if not the harness's own
	Callers  int    // calls at the same time
	Idle     time.Duration
	Programs Programs
	// CountsOnly leaves out what takes time and only serves the figures.
	CountsOnly bool
	// Profiles is a folder for profiles, or empty. Taking those of CPU costs the
	// proxy something; those of waiting are taken when everything is measured.
	Profiles string
	// Progress is told how far it is. It is called from several goroutines.
	Progress func(what string, done, of int)
}

// Run does one run.
func Run(ctx context.Context, options *Options) (*Result, error) {
	dir, err := os.MkdirTemp("", "bench") // short, for it holds a socket
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	around, err := neighbours.Start(ctx, options.Role, dir, options.Programs.Self)
	if err != nil {
		return nil, err
	}
	defer around.Close()
	proxy, err := start(ctx, options, around, dir)
	if err != nil {
		return nil, err
	}
	defer proxy.Kill()
	// A proxy or a far side that ends early ends the run.
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		select {
		case <-proxy.Done():
			cancel(proxy.Err())
		case <-around.Done():
			cancel(around.Err())
		case <-ctx.Done():
		}
	})
	r := &runner{options: options, around: around, proxy: proxy, result: &Result{
		Subject: options.Subject, Role: options.Role, Mode: options.Mode, Limit: options.Limit,
		Legs: options.Legs, Rounds: options.Rounds, Runs: 1,
	}}
	if options.Storm != "" {
		r.result.Storm = &Weather{Storm: options.Storm}
		err = r.storm(ctx)
	} else {
		err = r.run(ctx)
	}
	if ended := context.Cause(ctx); err == nil || errors.Is(err, context.Canceled) {
		err = ended
	}
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, proxy.Tail(5))
	}
	return r.result, nil
}

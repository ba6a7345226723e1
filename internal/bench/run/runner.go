package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
)

const (
	// warmUp is the number of legs that come and go first, so that what a
	// process makes once is not the legs'.
	warmUp = 10
	// quiet is how long the process may still work on what has been answered.
	quiet = 300 * time.Millisecond
	// late is how long an event may take that has to come. The SDK's chain puts
	// what it cannot send at once into a queue without end: what it works off
	// after the last answer belongs to the refreshes as well.
	late = time.Minute
)

// runner is a run under way.
type runner struct {
	options *Options
	around  *neighbours.Neighbours
	proxy   *child
	result  *Result
	// before is the settled memory without legs, in KiB.
	before float64
}

func (r *runner) run(ctx context.Context) error {
	if err := r.announce(ctx); err != nil {
		return err
	}
	if err := r.warm(ctx); err != nil {
		return err
	}
	l, err := r.load(0, r.options.Legs)
	if err != nil {
		return err
	}
	defer l.Close()
	peak := r.sample()
	err = r.establish(ctx, l)
	if err == nil {
		err = r.refresh(ctx, l)
	}
	if r.result.Peak = peak(); err != nil {
		return err
	}
	if err := r.idle(ctx); err != nil {
		return err
	}
	if err := r.finish(ctx, l); err != nil {
		return err
	}
	return r.contention(ctx, l)
}

// load makes a load of so many legs with numbers from first on.
func (r *runner) load(first, legs int) (*load.Load, error) {
	return load.New(&load.Options{
		Mode: r.options.Mode, Role: r.options.Role, Target: r.around.Proxy, From: r.around.Downstream,
		First: first, Legs: legs, Callers: r.options.Callers, Progress: r.options.Progress,
	})
}

// announce asks the proxy for the endpoint, as the client's nsmgr does before a
// Request is sent: the SDK's chain knows the way out only from that.
func (r *runner) announce(ctx context.Context) error {
	if r.options.Subject == Floor || r.options.Role == neighbours.Inbound {
		return nil
	}
	return r.around.Find(ctx)
}

// warm lets some legs come and go.
func (r *runner) warm(ctx context.Context) error {
	if r.options.CountsOnly {
		return nil
	}
	l, err := r.load(r.options.Legs, warmUp)
	if err != nil {
		return err
	}
	l.Establish(ctx)
	l.Refresh(ctx)
	l.Remove(ctx)
	l.Close()
	if err := l.Err(); err != nil {
		return err
	}
	r.before, err = r.proxy.settled(ctx)
	return err
}

func (r *runner) establish(ctx context.Context, l *load.Load) error {
	before, counts := r.cpu(), r.around.Counts()
	l.Establish(ctx)
	if err := rest(ctx, quiet); err != nil {
		return err
	}
	after := r.around.Counts()
	r.result.CPUPerFirst = milliseconds(r.cpu()-before) / float64(r.options.Legs)
	r.result.ConnectionsFirst = int(after.Connections - counts.Connections)
	r.result.HandshakesFirst = int(after.Handshakes - counts.Handshakes)
	return nil
}

func (r *runner) refresh(ctx context.Context, l *load.Load) error {
	profiled := r.profile(ctx)
	before, counts := r.cpu(), r.around.Counts()
	var latencies []time.Duration
	for range r.options.Rounds {
		latencies = append(latencies, l.Refresh(ctx)...)
	}
	if err := r.heard(ctx, l); err != nil {
		return err
	}
	after := r.around.Counts()
	slices.Sort(latencies)
	r.result.CPUPerRefresh = milliseconds(r.cpu()-before) / float64(r.options.Legs*r.options.Rounds)
	r.result.P50, r.result.P99 = quantile(latencies, 0.5), quantile(latencies, 0.99)
	r.result.Refreshes = len(latencies)
	r.result.ConnectionsRefresh = int(after.Connections - counts.Connections)
	r.result.HandshakesRefresh = int(after.Handshakes - counts.Handshakes)
	r.result.FindsRefresh = int(after.Finds - counts.Finds)
	return <-profiled
}

// heard waits for the events of the refreshes, and then for those that should
// not come.
func (r *runner) heard(ctx context.Context, l *load.Load) error {
	if r.options.Mode == load.Shared {
		limit := time.Now().Add(late)
		for l.Counts().Updates < r.options.Legs*r.options.Rounds && time.Now().Before(limit) {
			if err := rest(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return rest(ctx, quiet)
}

// profile takes a CPU profile beside what follows, if it is wanted.
func (r *runner) profile(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	if r.options.Profiles == "" {
		done <- nil
		return done
	}
	go func() {
		done <- r.proxy.save(ctx, fmt.Sprintf("profile?seconds=%d", profileTime/time.Second), r.file("cpu"))
	}()
	return done
}

func (r *runner) file(kind string) string {
	return filepath.Join(r.options.Profiles, fmt.Sprintf("%s-%s-%s-%s.pb.gz", r.options.Subject, r.options.Role, r.options.Mode, kind))
}

func (r *runner) idle(ctx context.Context) error {
	if r.options.Idle == 0 {
		return nil
	}
	before := r.cpu()
	began := time.Now()
	if err := rest(ctx, r.options.Idle); err != nil {
		return err
	}
	r.result.IdleCPU = 100 * float64(r.cpu()-before) / float64(time.Since(began))
	return nil
}

// finish reads memory and counts.
func (r *runner) finish(ctx context.Context, l *load.Load) error {
	if !r.options.CountsOnly {
		after, err := r.proxy.settled(ctx)
		if err != nil {
			return err
		}
		r.result.MemoryPerLeg = (after - r.before) / float64(r.options.Legs)
		r.result.Memory = after / (1 << 10)
	}
	if err := r.shape(ctx); err != nil {
		return err
	}
	r.counted(l)
	return nil
}

// counted writes down what was counted from the start.
func (r *runner) counted(l *load.Load) {
	counts, around := l.Counts(), r.around.Counts()
	r.result.ConnectionsOpen = int(around.Open)
	r.result.Registry, r.result.Finds = int(around.RegistryConnections), int(around.Finds)
	r.result.Downstream, r.result.Streams, r.result.InitialUp = counts.Handshakes, counts.Streams, counts.InitialUp
	r.result.Updates, r.result.Others, r.result.Errors = counts.Updates, counts.Others, counts.Errors
	r.result.Downs = counts.Downs
	if err := l.Err(); err != nil {
		r.result.FirstError = err.Error()
	}
}

// shape takes profiles of what is there, if they are wanted.
func (r *runner) shape(ctx context.Context) error {
	if r.options.Profiles == "" {
		return nil
	}
	for _, kind := range []string{"heap", "goroutine"} {
		if err := r.proxy.save(ctx, kind, r.file(kind)); err != nil {
			return err
		}
	}
	return nil
}

// contention goes on refreshing, when everything is measured, for profiles of who
// waits for whom, if they are wanted. Records of that would be part of the figures.
func (r *runner) contention(ctx context.Context, l *load.Load) error {
	if r.options.Profiles == "" {
		return nil
	}
	kinds := []string{"mutex", "block"}
	saved := make(chan error, len(kinds))
	for _, kind := range kinds {
		go func() {
			saved <- r.proxy.save(ctx, fmt.Sprintf("%s?seconds=%d", kind, profileTime/time.Second), r.file(kind))
		}()
	}
	refreshing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for refreshing.Err() == nil {
			l.Refresh(refreshing)
		}
	})
	var err error
	for range kinds {
		err = errors.Join(err, <-saved)
	}
	stop()
	wg.Wait()
	return err
}

func (r *runner) cpu() time.Duration {
	usage, _ := r.proxy.Usage()
	return usage.CPU
}

// rest waits that long, if ctx does not end.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

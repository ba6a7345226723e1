package run

import (
	"context"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
)

// Storm is something that happens to all legs at the same time.
type Storm string

const (
	// Cut is the end of every upstream connection, as a balancer that restarts
	// causes it.
	Cut Storm = "cut"
	// Establish is a first Request of every leg, by many callers.
	Establish Storm = "establish"
	// Subscribe is a subscriber of every leg that joins, all of them at once.
	Subscribe Storm = "subscribe"
)

// Storms are all of them.
func Storms() []Storm { return []Storm{Cut, Establish, Subscribe} }

const (
	// lostAfter is how long a leg may take to be watched again until it counts as
	// lost: longer than the grace.
	lostAfter = 45 * time.Second
	// aftermath is how long a storm's consequences are still waited for.
	aftermath = 2 * time.Second
)

// Weather is what a storm came to. Memory is in MiB.
type Weather struct {
	Storm Storm `json:"storm"`
	// Seconds is how long it took until every leg was as it should be, or had been
	// told as DOWN, or until that was given up.
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpuSeconds"`
	// Settled is the memory without garbage: before a cut and a burst of
	// subscribers, and after legs were established. Peak is the most there was.
	Settled float64 `json:"settledMiB"`
	Peak    float64 `json:"peakMiB"`
	// Dials is how many upstream connections the storm led to.
	Dials int `json:"upstreamDials"`
	// Missing is how many legs were not as they should be in the end: not watched
	// upstream, or without a subscriber who knows that they are UP.
	Missing int `json:"missing"`
}

// storm has one, and writes down what came of it.
func (r *runner) storm(ctx context.Context) error {
	if err := r.announce(ctx); err != nil {
		return err
	}
	l, err := r.load(0, r.options.Legs)
	if err != nil {
		return err
	}
	defer l.Close()
	switch r.options.Storm {
	case Cut:
		err = r.cut(ctx, l)
	case Establish:
		err = r.rush(ctx, l)
	case Subscribe:
		err = r.burst(ctx, l)
	}
	if err != nil {
		return err
	}
	r.counted(l)
	return nil
}

// cut waits until every leg is watched again.
func (r *runner) cut(ctx context.Context, l *load.Load) error {
	l.Establish(ctx)
	if err := r.until(ctx, lostAfter, func() bool { return r.around.Counts().Watched == r.options.Legs }); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	end := r.watch()
	opened := r.around.Counts().Opened
	began := time.Now()
	r.around.Cut()
	err := r.until(ctx, lostAfter, func() bool {
		counts := r.around.Counts()
		again := counts.Opened-opened >= r.options.Legs && counts.Watched == r.options.Legs
		return again || l.Counts().Downs >= r.options.Legs // no more to come
	})
	took := time.Since(began)
	if again := r.around.WatchedAfter(began); len(again) == r.options.Legs {
		took = again[len(again)-1]
	}
	if err == nil {
		err = rest(ctx, aftermath)
	}
	end(took)
	r.result.Storm.Missing = r.options.Legs - r.around.Counts().Watched
	return err
}

// rush establishes all legs.
func (r *runner) rush(ctx context.Context, l *load.Load) error {
	end := r.watch()
	began := time.Now()
	l.Establish(ctx)
	took := time.Since(began)
	err := rest(ctx, quiet)
	end(took)
	if err == nil {
		err = r.settle(ctx)
	}
	r.result.Storm.Missing = r.options.Legs - l.Counts().Streams
	return err
}

// burst has all subscribers join at once.
func (r *runner) burst(ctx context.Context, l *load.Load) error {
	l.Request(ctx)
	if err := r.settle(ctx); err != nil {
		return err
	}
	end := r.watch()
	began := time.Now()
	l.Subscribe(ctx)
	took := time.Since(began)
	err := rest(ctx, quiet)
	end(took)
	counts := l.Counts()
	r.result.Storm.Missing = r.options.Legs - counts.InitialUp
	if r.options.Subject == Floor {
		r.result.Storm.Missing = r.options.Legs - counts.Streams // it knows no states
	}
	return err
}

// settle notes the memory without garbage.
func (r *runner) settle(ctx context.Context) error {
	if r.options.CountsOnly {
		return rest(ctx, quiet)
	}
	settled, err := r.proxy.settled(ctx)
	r.result.Storm.Settled = settled / (1 << 10)
	return err
}

// watch begins to look at the proxy's process. end notes what was seen.
func (r *runner) watch() (end func(took time.Duration)) {
	cpu, dialled := r.cpu(), r.around.Counts().Connections
	peak := r.sample()
	return func(took time.Duration) {
		w := r.result.Storm
		w.Peak = peak()
		w.Seconds, w.CPU = took.Seconds(), (r.cpu() - cpu).Seconds()
		w.Dials = int(r.around.Counts().Connections - dialled)
	}
}

// until waits until something holds, and no longer than limit.
func (r *runner) until(ctx context.Context, limit time.Duration, holds func() bool) error {
	for end := time.Now().Add(limit); !holds() && time.Now().Before(end); {
		if err := rest(ctx, sampleEvery); err != nil {
			return err
		}
	}
	return nil
}

// medianStorm takes the median of each figure, and the counts as they are.
func medianStorm(counts *Weather, runs []*Result) *Weather {
	result := *counts
	for _, field := range []func(*Weather) *float64{
		func(w *Weather) *float64 { return &w.Seconds },
		func(w *Weather) *float64 { return &w.CPU },
		func(w *Weather) *float64 { return &w.Settled },
		func(w *Weather) *float64 { return &w.Peak },
	} {
		var values []float64
		for _, r := range runs {
			values = append(values, *field(r.Storm))
		}
		*field(&result) = median(values)
	}
	return &result
}

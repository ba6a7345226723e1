package run

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// profileTime is how long a CPU profile lasts: at 100 samples a second and
	// core, enough to see what costs a hundredth.
	profileTime = 10 * time.Second
	// settleTime bounds the wait for memory to go back to the system.
	settleTime = 6 * time.Second
	// settleStep is how often it is looked at, and a rest of settleRests steps in
	// which it does not shrink by a hundredth is the end.
	settleStep  = 250 * time.Millisecond
	settleRests = 4
	// sampleEvery is how often memory is looked at for its peak.
	sampleEvery = 10 * time.Millisecond
)

// collect makes the process collect its garbage, and returns when it has.
func (c *child) collect(ctx context.Context) error {
	return c.fetch(ctx, "heap?gc=1", io.Discard)
}

// fetch writes a profile to out.
func (c *child) fetch(ctx context.Context, profile string, out io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.profiles+"/debug/pprof/"+profile, http.NoBody)
	if err != nil {
		return fmt.Errorf("run: %s: %w", profile, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("run: %s: %w", profile, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("run: %s: %s", profile, answer.Status)
	}
	if _, err = io.Copy(out, answer.Body); err != nil {
		return fmt.Errorf("run: %s: %w", profile, err)
	}
	return nil
}

// save writes a profile to a file.
func (c *child) save(ctx context.Context, profile, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err = c.fetch(ctx, profile, file); err != nil {
		_ = file.Close()
		return err
	}
	if err = file.Close(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// settled collects twice, for what has a finalizer goes in the second round,
// waits until the process has given back what it will, and returns its memory in
// KiB.
func (c *child) settled(ctx context.Context) (float64, error) {
	for range 2 {
		if err := c.collect(ctx); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	ticker := time.NewTicker(settleStep)
	defer ticker.Stop()
	least, rests := c.memory(), 0
	for rests < settleRests {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return least, context.Cause(context.WithoutCancel(ctx))
		}
		now := c.memory()
		if now > least*0.99 {
			rests++
		} else {
			rests = 0
		}
		least = min(least, now)
	}
	return least, nil
}

func (c *child) memory() float64 {
	usage, _ := c.Usage()
	return float64(usage.Memory) / (1 << 10)
}

// sample looks at the memory until peak is called, which returns the most there was,
// in MiB. It may be called once.
func (r *runner) sample() (peak func() float64) {
	most, over := r.proxy.memory(), make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
				most = max(most, r.proxy.memory())
			}
		}
	})
	return func() float64 {
		close(over)
		sampling.Wait()
		return most / (1 << 10)
	}
}

//go:build linux

package hostile_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// beat is how often the witness makes a connection.
	beat = 100 * time.Millisecond
	// returnTime is what memory and goroutines may take to come back. The
	// runtime gives memory back to the system with a hundredth of the CPU.
	returnTime = 20 * time.Second
	// slack is how many goroutines may be left: of the witness's call under way,
	// of the look at them, and of what the runtime starts when it likes.
	slack = 25
	// returned is how much of its settled memory a process may hold afterwards.
	returned = 1.5
)

// size is what a process is made of at a moment.
type size struct {
	memory     int64 // bytes, resident, of its own
	goroutines int
}

func (s size) String() string {
	return fmt.Sprintf("%.1f MiB, %d goroutines", mib(s.memory), s.goroutines)
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// witness is a neighbour that does nothing wrong, while others do.
type witness struct {
	p      *process
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// mu guards what follows.
	mu      sync.Mutex
	made    int
	failed  []error
	slowest time.Duration
	peak    int64 // bytes
}

// watch begins to make a connection at every beat. It ends with the test.
func watch(t *testing.T, p *process) *witness {
	w := &witness{p: p}
	conn := p.dial(t, p.addr, p.tokens())
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	w.wg.Go(func() {
		ticks := time.NewTicker(beat)
		defer ticks.Stop()
		for n := 0; ; n++ {
			began := time.Now()
			err := connect(context.WithoutCancel(ctx), conn, fmt.Sprintf("witness-%d", n))
			w.note(time.Since(began), err)
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	})
	t.Cleanup(w.stop)
	return w
}

func (w *witness) stop() {
	w.cancel()
	w.wg.Wait()
}

func (w *witness) note(took time.Duration, err error) {
	usage, _ := w.p.Usage()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peak = max(w.peak, usage.Memory)
	if err != nil {
		w.failed = append(w.failed, err)
		return
	}
	w.made++
	w.slowest = max(w.slowest, took)
}

func (w *witness) served() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.made
}

// again forgets what was noted.
func (w *witness) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made, w.failed, w.slowest, w.peak = 0, nil, 0, 0
}

// look collects the process's garbage and returns its size.
func (p *process) look(t *testing.T) size {
	t.Helper()
	require.NoError(t, p.collect(t.Context()))
	goroutines, err := p.goroutines(t.Context())
	require.NoError(t, err)
	usage, ok := p.Usage()
	require.True(t, ok)
	return size{memory: usage.Memory, goroutines: goroutines}
}

// misuse does something to the process while the witness goes on, and requires
// that the process is then as it was. While lasts as long as the misuse does.
func (w *witness) misuse(t *testing.T, while func(t *testing.T)) {
	p := w.p
	before := p.look(t)
	w.again()
	began := time.Now()
	while(t)
	lasted := time.Since(began)
	// What was short may have fallen between two beats.
	require.Eventually(t, func() bool { return w.served() > 0 }, answerTime, tick)
	w.mu.Lock()
	made, failed, slowest, peak := w.made, w.failed, w.slowest, w.peak
	w.mu.Unlock()

	began = time.Now()
	var after size
	back := func() bool {
		return float64(after.memory) <= returned*float64(before.memory) && after.goroutines <= before.goroutines+slack
	}
	for after = p.look(t); !back() && time.Since(began) < returnTime; after = p.look(t) {
		time.Sleep(5 * tick)
	}
	t.Logf("before: %s; %.1f s, peak %.1f MiB; after: %s, %.1f s later; connections made by others: %d, slowest %s",
		before, lasted.Seconds(), mib(peak), after, time.Since(began).Seconds(), made, slowest.Round(time.Millisecond))
	require.True(t, back(), "it was %s, and is %s", before, after)
	require.Empty(t, failed, "others were served meanwhile")
	require.Less(t, slowest, answerTime)
	p.requireWell(t)
}

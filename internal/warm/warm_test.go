package warm_test

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/warm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inBubble(t *testing.T, f func(p *warm.Pool, end func())) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(log.WithLog(t.Context(), log.Empty()))
		end := func() { cancel(); wg.Wait() }
		defer end()
		f(warm.New(ctx, &wg), end)
	})
}

// name is the number of the goroutine, as a stack trace has it.
func name() string {
	b := make([]byte, 64)
	return string(bytes.Fields(b[:runtime.Stack(b, false)])[1])
}

func TestGoroutinesAreUsedAgain(t *testing.T) {
	inBubble(t, func(p *warm.Pool, _ func()) {
		var first, second, third string
		p.Run("test", func() { first = name() })
		synctest.Wait()
		p.Run("test", func() { second = name() })
		require.NotEqual(t, name(), first)
		require.Equal(t, first, second)
		time.Sleep(time.Minute)
		synctest.Wait()
		p.Run("test", func() { third = name() })
		require.NotEqual(t, first, third, "and not kept for ever")
	})
}

func TestWorkDoesNotWaitForOther(t *testing.T) {
	inBubble(t, func(p *warm.Pool, _ func()) {
		release := make(chan struct{})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { p.Run("test", func() { <-release }) })
		}
		synctest.Wait()
		ran := false
		p.Run("test", func() { ran = true })
		require.True(t, ran)
		close(release)
		wg.Wait()
	})
}

func TestNobodyWaitsForWhatWasStarted(t *testing.T) {
	inBubble(t, func(p *warm.Pool, end func()) {
		release, ran := make(chan struct{}), false
		require.True(t, p.Start("test", func() { <-release; ran = true }))
		require.False(t, ran)
		close(release)
		synctest.Wait()
		require.True(t, ran)
		end()
		require.False(t, p.Start("test", func() { t.Error("behind the end") }))
	})
}

func TestWhatManyTookIsGivenBack(t *testing.T) {
	inBubble(t, func(p *warm.Pool, _ func()) {
		// atOnce returns the goroutines that a thousand pieces of work at a time are done by.
		atOnce := func() map[string]bool {
			var mu sync.Mutex
			used, release := make(map[string]bool), make(chan struct{})
			for range 1000 {
				p.Start("test", func() {
					mu.Lock()
					used[name()] = true
					mu.Unlock()
					<-release
				})
			}
			synctest.Wait()
			close(release)
			synctest.Wait()
			return used
		}
		first, second := atOnce(), atOnce()
		require.Len(t, first, 1000)
		require.Len(t, second, 1000)
		kept := 0
		for name := range second {
			if first[name] {
				kept++
			}
		}
		require.Equal(t, 64, kept)
	})
}

func TestPanicEndsTheWorkAlone(t *testing.T) {
	inBubble(t, func(p *warm.Pool, _ func()) {
		before := guard.Panics()
		p.Run("test", func() { panic("of the test") })
		require.Equal(t, before+1, guard.Panics())
		ran := false
		p.Run("test", func() { ran = true })
		require.True(t, ran)
	})
}

func TestWorkBehindTheEnd(t *testing.T) {
	inBubble(t, func(p *warm.Pool, end func()) {
		end()
		var ran string
		p.Run("test", func() { ran = name() })
		require.Equal(t, name(), ran, "by who asked for it, whom somebody waits for")
	})
}

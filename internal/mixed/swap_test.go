package mixed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// swapped is how many connections live through the swaps.
	swapped = 5
	// refreshPause is short, so that refreshes fall into every moment of a swap.
	refreshPause = 300 * time.Millisecond
	// enough refreshes show that a connection is well.
	enough = 3
)

// Both stock proxies are replaced by ours while connections are refreshed, one
// after the other, with the names and ports unchanged.
func TestSwapUnderRefreshes(t *testing.T) {
	t.Parallel()
	client, endpoint := newDomains(t)
	outbound, inbound := newProxy(t, client, "outbound"), newProxy(t, endpoint, "inbound")
	outbound.start(t, stock)
	inbound.start(t, stock)

	var all []*refreshed
	for range swapped {
		all = append(all, keepRefreshing(connect(t, outbound, inbound)))
	}
	awaitMore(t, all)

	outbound.swap(t, ours)
	for _, r := range all {
		r.eventually(func() bool { return r.sub.ended() != nil }, "the stream to the stock proxy ends")
		r.Logf("at the outbound swap a subscriber saw %v, then: %v", r.sub.take(), r.sub.ended())
		r.sub = r.subscribe()
	}
	awaitMore(t, all)
	for _, r := range all {
		require.NotContains(t, r.sub.take(), down)
	}

	inbound.swap(t, ours)
	awaitMore(t, all)
	for _, r := range all {
		r.stop()
		require.NoError(t, r.failed(), "ids are kept")
		r.Logf("%d refreshes, %d refused during the swaps", r.good.Load(), r.refused.Load())
		r.settled()
		events := r.sub.take()
		require.NotContains(t, events, down, "ours says nothing of the swap behind it")
		require.NotContains(t, events, gone)
		require.Empty(t, r.far.Closes())
		require.Len(t, r.far.Conns(), 1, "the far side has one connection, not one for each proxy")
	}
	for _, r := range all {
		r.refresh()
		r.holds()
	}
}

// awaitMore waits until every connection has been renewed some more times.
func awaitMore(t *testing.T, all []*refreshed) {
	t.Helper()
	for _, r := range all {
		from := r.good.Load()
		r.eventually(func() bool { return r.good.Load() >= from+enough }, "refreshes get through")
	}
}

// refreshed is a connection that is renewed all the time.
type refreshed struct {
	*connection
	good, refused atomic.Int64
	cancel        context.CancelFunc
	wg            sync.WaitGroup

	mu  sync.Mutex
	err error // guarded by mu
}

func keepRefreshing(c *connection) *refreshed {
	ctx, cancel := context.WithCancel(c.Context())
	r := &refreshed{connection: c, cancel: cancel}
	r.wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(refreshPause):
			}
			r.note(c.tryRefresh())
		}
	})
	c.Cleanup(r.stop)
	return r
}

// note counts a refresh. One that was refused is tried again, as a client does;
// one that came back with other ids is a fault.
func (r *refreshed) note(err error) {
	switch {
	case err == nil:
		r.good.Add(1)
	case errors.Is(err, errOtherIDs):
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
	default:
		r.refused.Add(1)
		r.Logf("refresh: %v", err)
	}
}

func (r *refreshed) stop() {
	r.cancel()
	r.wg.Wait()
}

func (r *refreshed) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

package nsmgrproxy_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// rotating is an identity that changes when told to.
type rotating struct {
	mu      sync.Mutex
	serial  int
	changed chan struct{} // made inside the bubble
}

func (r *rotating) Current() (string, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strconv.Itoa(r.serial), time.Now().Add(24 * time.Hour)
}

func (r *rotating) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

func (r *rotating) rotate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serial++
	close(r.changed)
	r.changed = nil
}

func TestOwnRotation_LeavesALegUnwatchedNoLongerTheTenthTime(t *testing.T) {
	id := new(rotating)
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		for range 10 {
			conn = w.refreshing(s, conn, 1)
			time.Sleep(10 * time.Second)
			_, before := w.far.Streams()
			id.rotate()
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			open, opened := w.far.Streams()
			require.Equal(w, 1, open, "watched again")
			require.Equal(w, before+1, opened)
		}
		s.nothing("no DOWN")
	}, nsmgrproxy.WithIdentity(id, 10*time.Minute))
}

func TestOwnRotation_IsNoLossWithoutGrace(t *testing.T) {
	id := new(rotating)
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		for range 3 {
			time.Sleep(time.Minute)
			id.rotate()
			time.Sleep(10 * time.Second)
			s.nothing("the far side is well")
		}
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		s.down()
	}, nsmgrproxy.WithIdentity(id, 10*time.Minute), nsmgrproxy.WithMonitorGrace(0, 0))
}

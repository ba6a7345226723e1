package nsmgrproxy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

func TestContract_ProxyTerminates(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		began := time.Now()
		w.stop()
		<-s.done
		require.Equal(w, codes.Unavailable, status.Code(s.err), "%v", s.err)
		require.Less(w, time.Since(began), 10*time.Second)
		s.nothing("no event for it")
		require.Empty(w, w.far.Closes(), "nothing is closed upstream")
		require.Len(w, w.far.Conns(), 1)
	})
}

func TestContract_ProxyTerminatesWhileARefreshIsInFlight(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		w.far.Set(lbtest.Faults{RequestDelay: 2 * time.Second})
		answered := make(chan error, 1)
		go func() {
			_, err := w.request(again(conn))
			answered <- err
		}()
		synctest.Wait()
		began := time.Now()
		ended := make(chan time.Duration, 1)
		go func() { <-s.done; ended <- time.Since(began) }()
		w.drain()
		require.NoError(w, <-answered, "what is under way is answered")
		require.Zero(w, <-ended, "streams end at once")
		require.Equal(w, codes.Unavailable, status.Code(s.err), "%v", s.err)
		w.stop()
		require.Less(w, time.Since(began), 10*time.Second)
		require.Empty(w, w.far.Closes())
	})
}

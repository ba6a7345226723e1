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

func TestContract_ProxyTerminatesWithAThousandStreamsOpen(t *testing.T) {
	const streams, legs = 1000, 100
	inBubble(t, func(w *world) {
		for n := range legs {
			w.establish(n)
		}
		var subscribers []*subscriber
		for n := range streams {
			subscribers = append(subscribers, w.subscribe(n%legs))
		}
		deaf := w.deaf(0)
		began := time.Now()
		w.drain()
		require.Less(w, time.Since(began), 10*time.Second)
		synctest.Wait()
		for _, s := range subscribers {
			<-s.done // while the transport is still up: it is what the stream itself says
			require.Equal(w, codes.Unavailable, status.Code(s.err), "%v", s.err)
			require.ErrorContains(w, s.err, "shutting down")
			s.nothing("no event for it")
		}
		require.Equal(w, codes.Unavailable, status.Code(lastError(deaf)))
		w.stop()
		require.Less(w, time.Since(began), 10*time.Second)
		require.Empty(w, w.far.Closes(), "nothing is closed upstream")
		require.Len(w, w.far.Conns(), legs)
	})
}

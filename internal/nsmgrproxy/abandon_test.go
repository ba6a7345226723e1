package nsmgrproxy_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// slow is a far side that takes longer than its callers have time.
const slow = callTime + 5*time.Second

// retried is what a stock neighbour sends when it asks again: new ids for all of
// the path but its first segment.
func retried(n, try int) *networkservice.NetworkServiceRequest {
	r := newRequest(n)
	for i, segment := range r.GetConnection().GetPath().GetPathSegments() {
		if i > 0 {
			segment.Id = fmt.Sprintf("%s-again-%d", segment.GetId(), try)
		}
	}
	r.Connection.Id = r.Connection.Path.PathSegments[2].Id
	return r
}

func TestAbandoned_FirstRequestIsClosedWhenItsLateAnswerComes(t *testing.T) {
	inBubble(t, func(w *world) {
		w.far.Set(lbtest.Faults{RequestDelay: slow})
		_, err := w.request(newRequest(1))
		require.Equal(w, codes.DeadlineExceeded, status.Code(err), "%v", err)
		require.Len(w, w.far.Conns(), 1)
		time.Sleep(slow)
		require.Len(w, w.far.Closes(), 1)
		require.Empty(w, w.far.Conns(), "no leg is left of it")
		s := w.subscribe(1)
		defer s.end()
		time.Sleep(time.Minute)
		s.nothing("nobody watches it")
		open, _ := w.far.Streams()
		require.Zero(w, open)
	})
}

func TestAbandoned_WhoAsksAgainGetsTheSameLeg(t *testing.T) {
	for name, again := range map[string]func(try int) *networkservice.NetworkServiceRequest{
		"with new ids behind the first segment": func(try int) *networkservice.NetworkServiceRequest { return retried(1, try) },
		"with the same ids":                     func(int) *networkservice.NetworkServiceRequest { return newRequest(1) },
	} {
		for pause, wait := range map[string]time.Duration{"at once": 0, "when the answer is there": callTime} {
			t.Run(name+" "+pause, func(t *testing.T) {
				inBubble(t, func(w *world) {
					w.far.Set(lbtest.Faults{RequestDelay: slow})
					_, err := w.request(newRequest(1))
					require.Equal(w, codes.DeadlineExceeded, status.Code(err), "%v", err)
					w.far.Set(lbtest.Faults{})
					time.Sleep(wait)
					conn, err := w.request(again(1))
					require.NoError(w, err)
					time.Sleep(time.Minute)
					require.Len(w, w.far.Conns(), 1, "no second leg")
					if wait == 0 {
						require.Empty(w, w.far.Closes(), "taken over in place")
					}
					require.NoError(w, w.close(conn))
					require.Empty(w, w.far.Conns())
				})
			})
		}
	}
}

func TestAbandoned_EveryAskerGivesUp(t *testing.T) {
	inBubble(t, func(w *world) {
		w.far.Set(lbtest.Faults{RequestDelay: 40 * time.Second})
		_, err := w.request(newRequest(1))
		require.Error(w, err)
		_, err = w.request(retried(1, 1))
		require.Error(w, err)
		time.Sleep(2 * time.Minute)
		require.Empty(w, w.far.Conns(), "no leg is left")
	})
}

func TestAbandoned_SlowFarSideSucceedsInTheEnd(t *testing.T) {
	inBubble(t, func(w *world) {
		w.far.Set(lbtest.Faults{RequestDelay: 2 * callTime})
		var conn *networkservice.Connection
		for try := 0; conn == nil; try++ {
			require.Less(w, try, 5)
			if try == 2 {
				w.far.Set(lbtest.Faults{}) // what is established is answered fast
			}
			conn, _ = w.request(retried(1, try))
		}
		require.Len(w, w.far.Conns(), 1)
	})
}

func TestAbandoned_RefreshIsKept(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		w.far.Set(lbtest.Faults{RequestDelay: slow})
		ctx, cancel := context.WithTimeout(withToken(context.Background(), tokenTime), callTime)
		defer cancel()
		_, err := networkservice.NewNetworkServiceClient(w.cc).Request(ctx, again(conn))
		require.Equal(w, codes.DeadlineExceeded, status.Code(err), "%v", err)
		s.nothing("not answered yet")
		time.Sleep(slow)
		s.up()
		require.Empty(w, w.far.Closes())
		w.far.Set(lbtest.Faults{})
		w.refreshing(s, conn, 2)
		require.Len(w, w.far.Conns(), 1)
	})
}

func TestAbandoned_CloseWhileARequestIsInFlight(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		w.far.Set(lbtest.Faults{RequestDelay: slow})
		go func() { _, _ = w.request(again(conn)) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(w, w.close(conn))
		require.Equal(w, time.Second, time.Since(began), "the caller is not held")
		require.Empty(w, w.far.Closes(), "one after the other")
		time.Sleep(time.Minute)
		require.Len(w, w.far.Closes(), 1, "closed all the same")
		require.Empty(w, w.far.Conns())
	})
}

func TestLateClose_OfAnOlderStateIsIgnored(t *testing.T) {
	inBubble(t, func(w *world) {
		s, old := w.watched(1)
		defer s.end()
		conn := w.refreshing(s, old, 1)
		require.NoError(w, w.close(old))
		require.Empty(w, w.far.Closes(), "made before the last Request")
		s.nothing("the newer leg is not touched")
		require.NoError(w, w.close(conn))
		require.Len(w, w.far.Closes(), 1)
	})
}

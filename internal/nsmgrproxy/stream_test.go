package nsmgrproxy_test

import (
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// A far side that answers Requests says that the connection is there, whatever
// it does with streams. Its Requests are then the proxy's way to find out.
func TestStream_FarSideThatShowsNothingButAnswersIsAskedInstead(t *testing.T) {
	for name, faults := range map[string]lbtest.Faults{
		"refuses":               {MonitorError: status.Error(codes.PermissionDenied, "not yours")},
		"ends it with an error": {MonitorError: status.Error(codes.Unknown, "no such id")},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.far.Set(faults)
				s, _ := w.watched(1)
				defer s.end()
				time.Sleep(10 * time.Minute / 2)
				s.nothing("it is UP, by its own word")
				require.Less(w, len(w.far.Requests()), 60, "and is not asked without pause")
				require.Greater(w, len(w.far.Requests()), 10)

				w.far.Set(lbtest.Faults{MonitorError: faults.MonitorError, RequestError: status.Error(codes.Unknown, "the endpoint is gone")})
				time.Sleep(nsmgrproxy.DefaultMonitorGrace + 10*time.Second)
				s.down()
				time.Sleep(time.Minute)
				s.nothing("once")
			})
		})
	}
}

func TestStream_FarSideThatSaysNothingIsOneDownAfterTheGrace(t *testing.T) {
	inBubble(t, func(w *world) {
		w.far.Set(lbtest.Faults{MonitorSilent: true})
		s, _ := w.watched(1)
		defer s.end()
		time.Sleep(nsmgrproxy.DefaultMonitorGrace - time.Millisecond)
		s.nothing("silence is not absence")
		require.Len(w, w.far.Requests(), 1)
		time.Sleep(2 * time.Millisecond)
		s.down()
		w.far.Set(lbtest.Faults{})
		time.Sleep(10 * time.Second)
		s.up()
	})
}

func TestStream_EndedAfterItsFirstMessage(t *testing.T) {
	inBubble(t, func(w *world) {
		w.far.Set(lbtest.Faults{MonitorOnce: true})
		s, _ := w.watched(1)
		defer s.end()
		time.Sleep(5 * time.Minute)
		s.nothing("shown each time")
		_, opened := w.far.Streams()
		require.Less(w, opened, 400, "not without pause")
		require.Len(w, w.far.Requests(), 1)
		w.far.Think(setState(networkservice.State_DOWN))
		time.Sleep(3 * time.Second)
		s.down()
	})
}

func TestStream_ResetEveryFewSecondsTheHundredthIsLikeTheFirst(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		for range 100 {
			time.Sleep(3 * time.Second)
			w.far.EndStreams()
			time.Sleep(100 * time.Millisecond)
			open, _ := w.far.Streams()
			require.Equal(w, 1, open, "resumed at once")
		}
		s.nothing("nothing was lost")
		require.Equal(w, 1, w.wire.Dials(farAddr))
	})
}

// A peer that recycles its connections says so with GOAWAY: gRPC opens the next
// one while the calls on the old one go on.
func TestStream_FarSideThatRecyclesConnections(t *testing.T) {
	inBubble(t, func(w *world) {
		defer w.serve(otherAddr, w.far.Register, grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: 30 * time.Second, MaxConnectionAgeGrace: 10 * time.Second,
		}))()
		w.remote.set(endpointName, "tcp://"+otherAddr)
		s, conn := w.watched(1)
		defer s.end()
		w.refreshing(s, conn, 5)
		require.Greater(w, w.wire.Dials(otherAddr), 10, "recycled all the time")
		time.Sleep(time.Second)
		w.far.Say(setState(networkservice.State_DOWN))
		s.down()
	})
}

// The far side's word that came with a Request in flight is judged against its
// answer.
func TestStream_DownInTheTimeOfARefresh(t *testing.T) {
	for name, c := range map[string]struct {
		faults lbtest.Faults
		at     time.Duration
		want   []networkservice.State
	}{
		"older than the answer: the far side healed it":             {lbtest.Faults{RequestDelay: 900 * time.Millisecond}, 100 * time.Millisecond, []networkservice.State{networkservice.State_UP}},
		"newer than the answer: the endpoint died":                  {lbtest.Faults{RequestDelay: 900 * time.Millisecond, ReportFirst: true}, 100 * time.Millisecond, []networkservice.State{networkservice.State_UP, networkservice.State_DOWN}},
		"a Request that takes its time holds no DOWN back for long": {lbtest.Faults{RequestDelay: 10 * time.Second, ReportFirst: true}, 100 * time.Millisecond, []networkservice.State{networkservice.State_DOWN, networkservice.State_UP}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s, conn := w.watched(1)
				defer s.end()
				w.far.Set(c.faults)
				time.AfterFunc(c.at, func() { w.far.Say(setState(networkservice.State_DOWN)) })
				_, err := w.request(again(conn))
				require.NoError(w, err)
				time.Sleep(5 * time.Second)
				var got []networkservice.State
				for _, event := range s.next() {
					for _, conn := range event.GetConnections() {
						got = append(got, conn.GetState())
					}
				}
				require.Equal(w, c.want, got)
			})
		})
	}
}

func TestStream_DownBeforeAFailingRefreshIsLetGo(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "no")})
		w.far.Say(setState(networkservice.State_DOWN))
		_, err := w.request(again(conn))
		require.Error(w, err)
		s.down()
		time.Sleep(time.Minute)
		s.nothing("once")
	})
}

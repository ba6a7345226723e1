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
		"ends it with EOF":      {MonitorEnds: true},
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

				faults.RequestError = status.Error(codes.Unknown, "the endpoint is gone")
				w.far.Set(faults)
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

// Late is not silent: what has come within a few seconds is an initial state.
func TestStream_FarSideWhoseInitialStateIsLate(t *testing.T) {
	for _, late := range []time.Duration{time.Second, 4 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.far.Set(lbtest.Faults{MonitorDelay: late})
				s, conn := w.watched(1)
				defer s.end()
				for range 5 {
					time.Sleep(20 * time.Second)
					w.far.EndStreams()
				}
				w.refreshing(s, conn, 2)
				require.Len(w, w.far.Requests(), 3, "nothing was requested for it")
				w.far.Say(setState(networkservice.State_DOWN))
				s.down()
				time.Sleep(time.Minute)
				s.nothing("once")
			})
		})
	}
}

// An initial state on a stream that was opened before an answer says nothing
// against it, even where expiries do not tell which is older.
func TestStream_InitialStateThatIsOvertakenByAnAnswer(t *testing.T) {
	capped := time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC)
	for name, before := range map[string]func(w *world){
		"it says DOWN": func(w *world) { w.far.Say(setState(networkservice.State_DOWN)) },
		"it says DOWN, and expiries go back": func(w *world) {
			w.far.Say(setState(networkservice.State_DOWN))
			w.far.Set(lbtest.Faults{Expires: capped.Add(-time.Minute), MonitorDelay: 3 * time.Second})
		},
		"it does not hold the leg": func(w *world) { w.far.Delete() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.far.Set(lbtest.Faults{Expires: capped, MonitorDelay: 3 * time.Second})
				s, conn := w.watched(1)
				defer s.end()
				time.Sleep(time.Minute)
				before(w)
				s.down()
				w.far.EndStreams()
				time.Sleep(time.Second)
				_, err := w.request(again(conn))
				require.NoError(w, err)
				s.up()
				time.Sleep(2500 * time.Millisecond)
				s.nothing("the answer is newer")
				time.Sleep(3 * time.Second)
				w.far.Say(setState(networkservice.State_DOWN))
				s.down()
				require.Len(w, w.far.Requests(), 2, "and nothing was requested for it")
			})
		})
	}
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
		w.far.Say(setState(networkservice.State_DOWN))
		time.Sleep(time.Second) // it may fall between two streams
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
		"older than the answer: the far side healed it":                            {lbtest.Faults{RequestDelay: 900 * time.Millisecond}, 100 * time.Millisecond, []networkservice.State{networkservice.State_UP}},
		"newer than the answer: the endpoint died":                                 {lbtest.Faults{RequestDelay: 900 * time.Millisecond, ReportFirst: true}, 100 * time.Millisecond, []networkservice.State{networkservice.State_UP, networkservice.State_DOWN}},
		"a Request that takes its time holds no DOWN back for long, nor undoes it": {lbtest.Faults{RequestDelay: 10 * time.Second, ReportFirst: true}, 100 * time.Millisecond, []networkservice.State{networkservice.State_DOWN, networkservice.State_UP, networkservice.State_DOWN}},
		"and one that the far side healed after it stays so":                       {lbtest.Faults{RequestDelay: 10 * time.Second}, 100 * time.Millisecond, []networkservice.State{networkservice.State_DOWN, networkservice.State_UP}},
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

// What callers may not say is not passed on to them either, and is no loss: the far side
// has the leg.
func TestStream_MalformedWordIsLeftOut(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		w.far.Say(func(conn *networkservice.Connection) {
			conn.Context.MTU = 1400
			conn.Path.PathSegments[5].Name = "two\nlines"
		})
		s.nothing("left out")
		w.wire.Cut(farAddr)
		time.Sleep(time.Minute)
		s.nothing("the same on resume")
		require.Len(w, w.far.Requests(), 1, "it is not asked again for what it has")
		w.far.Say(func(conn *networkservice.Connection) { conn.Path.PathSegments[5].Name = "far-5" })
		require.EqualValues(w, 1400, s.up().GetContext().GetMTU())
	})
}

package nsmgrproxy_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

func ids(conn *networkservice.Connection) []string {
	var ids []string
	for _, segment := range conn.GetPath().GetPathSegments() {
		ids = append(ids, segment.GetId())
	}
	return ids
}

func setState(state networkservice.State) func(*networkservice.Connection) {
	return func(conn *networkservice.Connection) { conn.State = state }
}

func TestContract_FirstRequestIsOneUpdate(t *testing.T) {
	inBubble(t, func(w *world) {
		s := w.subscribe(1)
		defer s.end()
		conn := w.establish(1)
		told := s.up()
		require.Equal(w, ids(conn), ids(told))
		require.Equal(w, 1, w.wire.Dials(farAddr))
	})
}

func TestContract_RefreshIsOneUpdateInPlace(t *testing.T) {
	for name, faults := range map[string]lbtest.Faults{
		"reported with the answer":    {},
		"reported long before it":     {RequestDelay: 3 * time.Second, ReportFirst: true},
		"answered late, then reports": {RequestDelay: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s := w.subscribe(1)
				defer s.end()
				conn := w.establish(1)
				first := s.up()
				_, opened := w.far.Streams()
				finds := w.remote.asked() + w.local.asked()
				w.far.Set(faults)
				for range 5 {
					time.Sleep(2 * time.Minute)
					refreshed, err := w.request(again(conn))
					require.NoError(w, err)
					told := s.up()
					require.Equal(w, ids(conn), ids(refreshed), "ids stay")
					require.Equal(w, ids(first), ids(told))
					for i := 2; i < 6; i++ {
						require.NotEqual(w, first.GetPath().GetPathSegments()[i].GetToken(), told.GetPath().GetPathSegments()[i].GetToken(), "token %d is renewed", i)
					}
					conn, first = refreshed, told
				}
				time.Sleep(time.Minute)
				s.nothing("a refresh is one event")
				_, openedBy := w.far.Streams()
				require.Equal(w, opened, openedBy, "the monitor stream stays")
				require.Equal(w, 1, w.wire.Dials(farAddr), "the hop stays")
				require.Equal(w, finds, w.remote.asked()+w.local.asked(), "nothing is looked up")
				require.Empty(w, w.far.Closes())
			})
		})
	}
}

func TestContract_FailedRefreshIsNoEvent(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.ResourceExhausted, "not now")})
		_, err := w.request(again(conn))
		require.Equal(w, codes.ResourceExhausted, status.Code(err), "the caller gets the error: %v", err)
		time.Sleep(time.Minute)
		s.nothing("a failed refresh says nothing of the connection")
		require.Empty(w, w.far.Closes())

		w.far.Say(setState(networkservice.State_DOWN))
		s.down()
	})
}

func TestContract_LossResumedInsideTheGraceIsNothing(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"hop cut":       func(w *world) { require.Equal(w, 1, w.wire.Cut(farAddr)) },
		"streams ended": func(w *world) { w.far.EndStreams() },
		"outage of 20 s": func(w *world) {
			w.wire.Refuse(farAddr, true)
			w.wire.Cut(farAddr)
			time.Sleep(20 * time.Second)
			w.wire.Refuse(farAddr, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s, _ := w.watched(1)
				defer s.end()
				for range 3 {
					lose(w)
					time.Sleep(10 * time.Second)
					open, _ := w.far.Streams()
					require.Equal(w, 1, open, "watched again")
					s.nothing("a loss that was resumed")
				}
				require.Len(w, w.far.Requests(), 1, "nothing was requested for it")
				w.far.Say(setState(networkservice.State_DOWN))
				s.down()
			})
		})
	}
}

func TestContract_FarSideThatForgotIsRequestedInPlace(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		time.Sleep(time.Minute)
		w.far.Forget()
		w.wire.Cut(farAddr)
		time.Sleep(10 * time.Second)
		s.nothing("put back in place")
		requests := w.far.Requests()
		require.Len(w, requests, 2)
		require.Equal(w, ids(conn), ids(requests[1].GetConnection()), "same ids")
		require.Equal(w, endpointName, requests[1].GetConnection().GetNetworkServiceEndpointName())
		require.NotEqual(w,
			requests[0].GetConnection().GetPath().GetPathSegments()[3].GetToken(),
			requests[1].GetConnection().GetPath().GetPathSegments()[3].GetToken(), "a fresh token")
		require.Len(w, w.far.Conns(), 1)
		w.far.Say(setState(networkservice.State_DOWN))
		s.down()
	})
}

func TestContract_FarSideThatForgotAndRefusesIsOneDownAfterTheGrace(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "restarting")})
		w.far.Forget()
		w.wire.Cut(farAddr)
		time.Sleep(nsmgrproxy.DefaultMonitorGrace - time.Second)
		s.nothing("inside the grace")
		require.Greater(w, len(w.far.Requests()), 3, "asked again and again")
		time.Sleep(2 * time.Second)
		s.down()
		time.Sleep(5 * time.Minute)
		s.nothing("once")
	})
}

func TestContract_NotResumedIsOneDownWhenTheGraceEnds(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		time.Sleep(nsmgrproxy.DefaultMonitorGrace - time.Millisecond)
		s.nothing("inside the grace")
		time.Sleep(2 * time.Millisecond)
		s.down()
		time.Sleep(3 * time.Minute)
		s.nothing("once")

		// Row "later resumed after that DOWN, and it is UP after all".
		w.wire.Refuse(farAddr, false)
		time.Sleep(10 * time.Second)
		s.up()
		time.Sleep(time.Minute)
		s.nothing("once")
	})
}

func TestContract_FarSidesDownIsOneDownAtOnce(t *testing.T) {
	for name, say := range map[string]func(w *world){
		"DOWN":                   func(w *world) { w.far.Say(setState(networkservice.State_DOWN)) },
		"DELETE":                 func(w *world) { w.far.Delete() },
		"DOWN, and DELETE later": func(w *world) { w.far.Say(setState(networkservice.State_DOWN)); w.far.Delete() },
		"DOWN while cut": func(w *world) {
			w.wire.Refuse(farAddr, true)
			w.wire.Cut(farAddr)
			w.far.Think(setState(networkservice.State_DOWN))
			time.Sleep(5 * time.Second)
			w.wire.Refuse(farAddr, false)
			time.Sleep(5 * time.Second)
		},
		"DOWN between two streams": func(w *world) {
			w.far.Think(setState(networkservice.State_DOWN))
			w.far.EndStreams()
			time.Sleep(100 * time.Millisecond)
		},
		"DOWN between two streams of which none stays": func(w *world) {
			w.far.Set(lbtest.Faults{MonitorOnce: true})
			w.far.Think(setState(networkservice.State_DOWN))
			w.far.EndStreams()
			time.Sleep(100 * time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s, _ := w.watched(1)
				defer s.end()
				time.Sleep(2 * time.Second)
				say(w)
				s.down()
				time.Sleep(2 * time.Minute)
				s.nothing("once")
				require.Len(w, w.far.Requests(), 1, "the far side's word is not argued with")
			})
		})
	}
}

func TestContract_OtherContextIsOneUpdate(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		w.far.Say(func(conn *networkservice.Connection) {
			conn.Context.MTU = 1400
			conn.Mechanism = &networkservice.Mechanism{Type: "not theirs to say"}
			conn.NetworkServiceEndpointName = "nor this"
		})
		told := s.up()
		require.EqualValues(w, 1400, told.GetContext().GetMTU())
		require.NotEqual(w, "not theirs to say", told.GetMechanism().GetType())

		w.far.Say(func(conn *networkservice.Connection) {
			conn.Path.PathSegments[4].Token = "an.other.token"
		})
		s.nothing("a token is not news")
		late := w.subscribe(1)
		defer late.end()
		for _, known := range late.initial {
			require.Equal(w, "an.other.token", known.GetPath().GetPathSegments()[4].GetToken(), "but who joins learns it")
		}
	})
}

func TestContract_RefreshRequestedIsPassedOnOnce(t *testing.T) {
	for name, say := range map[string]func(w *world){
		"live": func(w *world) { w.far.Say(setState(networkservice.State_REFRESH_REQUESTED)) },
		"found on resume": func(w *world) {
			w.far.Think(setState(networkservice.State_REFRESH_REQUESTED))
			w.wire.Cut(farAddr)
			time.Sleep(5 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s, conn := w.watched(1)
				defer s.end()
				say(w)
				s.one(networkservice.ConnectionEventType_UPDATE, networkservice.State_REFRESH_REQUESTED)
				w.wire.Cut(farAddr)
				time.Sleep(5 * time.Second)
				s.nothing("once")
				_, err := w.request(again(conn))
				require.NoError(w, err)
				s.up()
			})
		})
	}
}

func TestContract_ReselectRequestedFromTheFarSideIsNoEvent(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		w.far.Think(setState(networkservice.State_RESELECT_REQUESTED))
		w.wire.Cut(farAddr)
		time.Sleep(time.Minute)
		s.nothing("it is up")
		w.far.Say(setState(networkservice.State_RESELECT_REQUESTED))
		s.nothing("it is up")
	})
}

func TestContract_CloseIsDelete(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		require.NoError(w, w.close(conn))
		s.one(networkservice.ConnectionEventType_DELETE, networkservice.State_UP)
		require.Len(w, w.far.Closes(), 1)
		require.Empty(w, w.far.Conns())
		time.Sleep(time.Minute)
		s.nothing("nothing after the end")
		open, _ := w.far.Streams()
		require.Zero(w, open)
	})
}

func TestContract_CloseOnADeadHopDoesNotHoldTheCaller(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		began := time.Now()
		require.NoError(w, w.close(conn))
		require.LessOrEqual(w, time.Since(began), time.Second)
		s.one(networkservice.ConnectionEventType_DELETE, networkservice.State_UP)

		time.Sleep(5 * time.Second)
		w.wire.Refuse(farAddr, false)
		time.Sleep(10 * time.Second)
		require.Len(w, w.far.Closes(), 1, "delivered behind the caller")
		require.Empty(w, w.far.Conns())
	})
}

func TestContract_LateCloseIsDroppedForANewerRequest(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		require.NoError(w, w.close(conn))
		answered := make(chan error, 1)
		go func() {
			_, err := w.request(again(conn))
			answered <- err
		}()
		synctest.Wait()
		w.wire.Refuse(farAddr, false)
		require.NoError(w, <-answered)
		time.Sleep(time.Minute)
		require.Empty(w, w.far.Closes(), "the Close was of an older leg")
		require.Len(w, w.far.Conns(), 1)
	})
}

func TestContract_LateCloseGoesOnAfterARequestThatFailed(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		require.NoError(w, w.close(conn))
		_, err := w.request(again(conn))
		require.Error(w, err)
		w.wire.Refuse(farAddr, false)
		time.Sleep(10 * time.Second)
		require.Len(w, w.far.Closes(), 1, "nobody has the leg")
		require.Empty(w, w.far.Conns())
		require.Len(w, w.far.Requests(), 1)
	})
}

func TestContract_TokensRunOut(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		time.Sleep(tokenTime - callTime - time.Second)
		s.nothing("still valid")
		time.Sleep(2 * time.Second)
		s.one(networkservice.ConnectionEventType_DELETE, networkservice.State_UP)
		require.Len(w, w.far.Closes(), 1)
	})
}

func TestContract_ClientsReselectIsOneUpdate(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		reselect := newRequest(1)
		reselect.Connection = conn.Clone()
		reselect.Connection.State = networkservice.State_RESELECT_REQUESTED
		reselect.Connection.Mechanism = nil
		_, err := w.request(reselect)
		require.NoError(w, err)
		require.Len(w, w.far.Closes(), 1, "the old leg is closed")
		require.Len(w, w.far.Requests(), 2)
		s.up()
		time.Sleep(time.Minute)
		s.nothing("neither DELETE nor DOWN")
		w.far.Say(setState(networkservice.State_DOWN))
		s.down()
	})
}

// forgetful is a far side that answers a Close and keeps what it was of.
type forgetful struct{ *lbtest.Peer }

func (f forgetful) register(s *grpc.Server) {
	networkservice.RegisterNetworkServiceServer(s, f)
	networkservice.RegisterMonitorConnectionServer(s, f)
}

func (forgetful) Close(context.Context, *networkservice.Connection) (*emptypb.Empty, error) {
	return new(emptypb.Empty), nil
}

func TestContract_ReselectToAnotherEndpointHearsNothingOfTheOldLeg(t *testing.T) {
	for name, endpoint := range map[string]string{
		"of the same nsmgr": "endpoint2@cluster2",
		"of a third domain": otherEndpoint,
		"the same, anew":    endpointName,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				old := forgetful{lbtest.NewPeer("old")}
				defer w.serve(otherAddr, old.register)()
				w.remote.set(endpointName, "tcp://"+otherAddr)
				w.remote.set("endpoint2@cluster2", "tcp://"+otherAddr)
				w.remote.set(otherEndpoint, "tcp://"+farAddr)
				s, conn := w.watched(1)
				defer s.end()
				r := reselect(conn, endpoint)
				r.Connection.Path.PathSegments = r.Connection.Path.PathSegments[:4] // the far side makes another leg
				reselected, err := w.request(r)
				require.NoError(w, err)
				require.Equal(w, ids(conn)[:4], ids(reselected)[:4])
				require.NotEqual(w, ids(conn)[4], ids(reselected)[4])
				s.states("UP")

				isOld := func(c *networkservice.Connection) bool { return c.GetId() == ids(conn)[4] }
				isNew := func(c *networkservice.Connection) bool { return c.GetId() == ids(reselected)[4] }
				time.Sleep(time.Minute)
				old.SayIf(isOld, func(c *networkservice.Connection) { c.Context.MTU = 9000 })
				old.SayIf(isOld, setState(networkservice.State_DOWN))
				old.EndStreams() // the old leg is in the initial state of the next
				time.Sleep(time.Minute)
				old.DeleteIf(isOld)
				time.Sleep(time.Minute)
				s.nothing("from the old leg")

				refreshed, err := w.request(again(reselected))
				require.NoError(w, err)
				require.Equal(w, ids(reselected), ids(refreshed))
				s.states("UP")
				old.SayIf(isNew, setState(networkservice.State_DOWN))
				w.far.SayIf(isNew, setState(networkservice.State_DOWN))
				s.states("DOWN")
			})
		})
	}
}

// A far side that lists the old leg alone has lost the one that is ours.
func TestContract_OldLegAfterAReselectIsNotTakenForTheNewOne(t *testing.T) {
	inBubble(t, func(w *world) {
		old := forgetful{lbtest.NewPeer("old")}
		defer w.serve(otherAddr, old.register)()
		w.remote.set(endpointName, "tcp://"+otherAddr)
		s, conn := w.watched(1)
		defer s.end()
		r := reselect(conn, endpointName)
		r.Connection.Path.PathSegments = r.Connection.Path.PathSegments[:4]
		reselected, err := w.request(r)
		require.NoError(w, err)
		s.up()
		time.Sleep(time.Minute)
		isNew := func(c *networkservice.Connection) bool { return c.GetId() == ids(reselected)[4] }
		old.ForgetIf(isNew)
		old.Think(func(c *networkservice.Connection) {
			c.Path.PathSegments[4].Expires = reselected.GetPath().GetPathSegments()[4].GetExpires()
		})
		old.EndStreams()
		time.Sleep(10 * time.Second)
		require.Len(w, old.Requests(), 3, "requested in place")
		require.Len(w, old.Conns(), 2)
		s.nothing("put back in place")
		old.SayIf(isNew, setState(networkservice.State_DOWN))
		s.down()
	})
}

func TestContract_HealBesideRefreshIsOneUpdateForEach(t *testing.T) {
	for name, order := range map[string][2]time.Duration{
		"heal first":    {0, 100 * time.Millisecond},
		"refresh first": {100 * time.Millisecond, 0},
		"at once":       {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s, conn := w.watched(1)
				defer s.end()
				w.far.Set(lbtest.Faults{RequestDelay: time.Second, ReportFirst: true})
				time.Sleep(time.Minute)
				var wg sync.WaitGroup
				for i, r := range []*networkservice.NetworkServiceRequest{reselect(conn, endpointName), again(conn)} {
					wg.Go(func() {
						time.Sleep(order[i])
						answer, err := w.request(r)
						require.NoError(w, err)
						require.Equal(w, ids(conn), ids(answer))
					})
				}
				wg.Wait()
				time.Sleep(time.Minute)
				s.states("UP", "UP")
				require.Len(w, w.far.Conns(), 1)
				require.Len(w, w.far.Closes(), 1, "the heal's, of the leg before it")
				open, _ := w.far.Streams()
				require.Equal(w, 1, open)
				w.far.Say(setState(networkservice.State_DOWN))
				s.down()
			})
		})
	}
}

func TestContract_LateSubscriberLearnsWhatIsKnown(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		w.far.Say(setState(networkservice.State_DOWN))
		synctest.Wait()
		_, err := w.request(again(conn))
		require.NoError(w, err)
		s := w.subscribe(1)
		defer s.end()
		s.nothing("the initial state is one event")
		other := w.subscribe(2)
		defer other.end()
		_, err = w.request(again(conn))
		require.NoError(w, err)
		s.up()
		other.nothing("another's connection")
	})
}

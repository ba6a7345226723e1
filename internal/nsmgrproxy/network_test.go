package nsmgrproxy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

const otherAddr = "10.9.2.5:5004"

// refreshing refreshes a connection every two minutes, as the SDK's client does
// with tokens of ten, and requires one UPDATE for each.
func (w *world) refreshing(s *subscriber, conn *networkservice.Connection, rounds int) *networkservice.Connection {
	w.Helper()
	for range rounds {
		time.Sleep(2 * time.Minute)
		refreshed, err := w.request(again(conn))
		require.NoError(w, err)
		require.Equal(w, ids(conn), ids(refreshed))
		s.up()
		conn = refreshed
	}
	return conn
}

// The report: an AWS Classic ELB closes after 60 s without payload, and the
// client refreshes every 120 s.
func TestIdleBalancer_ProbeKeepsTheHop(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wire.SetIdle(farAddr, time.Minute)
		s, conn := w.watched(1)
		defer s.end()
		w.refreshing(s, conn, 5)
		require.Equal(w, 1, w.wire.Dials(farAddr), "never cut")
	})
}

func TestIdleBalancer_LimitBelowTheProbeIsResumed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wire.SetIdle(farAddr, time.Minute)
		s, conn := w.watched(1)
		defer s.end()
		conn = w.refreshing(s, conn, 1)
		// The annotation that had raised the limit got lost.
		w.wire.SetIdle(farAddr, 10*time.Second)
		w.refreshing(s, conn, 3)
		require.Greater(w, w.wire.Dials(farAddr), 20, "cut all the time")
		require.Len(w, w.far.Requests(), 5, "and nothing requested for it")
	})
}

func TestIdleBalancer_ResumesWithoutProbe(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wire.SetIdle(farAddr, time.Minute)
		s, conn := w.watched(1)
		defer s.end()
		w.refreshing(s, conn, 5)
		require.GreaterOrEqual(w, w.wire.Dials(farAddr), 6, "the balancer did cut")
	}, nsmgrproxy.WithHopProbeInterval(0))
}

// A client that heals closes and requests anew: within 30 s it finds the connection
// as it was. Later there is none.
func TestHeal_FindsTheHopWarm(t *testing.T) {
	for _, c := range []struct {
		away time.Duration
		open int
	}{{time.Second, 1}, {29 * time.Second, 1}, {31 * time.Second, 0}} {
		t.Run(c.away.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				conn := w.establish(1)
				time.Sleep(time.Minute)
				require.NoError(w, w.close(conn))
				time.Sleep(c.away)
				require.Equal(w, c.open, w.wire.Open(farAddr))
				w.establish(2)
				require.Equal(w, 2-c.open, w.wire.Dials(farAddr))
			})
		})
	}
}

// The check bites: without a grace the same cuts are DOWNs, as in stock.
func TestIdleBalancer_WithoutGraceEveryCutIsADown(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wire.SetIdle(farAddr, time.Minute)
		s, _ := w.watched(1)
		defer s.end()
		time.Sleep(61 * time.Second)
		events := s.next()
		require.NotEmpty(w, events)
		for _, conn := range events[0].GetConnections() {
			require.Equal(w, networkservice.State_DOWN, conn.GetState())
		}
	}, nsmgrproxy.WithHopProbeInterval(0), nsmgrproxy.WithMonitorGrace(0, 0))
}

func TestBlackHole(t *testing.T) {
	for name, c := range map[string]struct {
		silence time.Duration
		down    bool
	}{
		"20 s are not seen":     {20 * time.Second, false},
		"5 min are exactly one": {5 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s, _ := w.watched(1)
				defer s.end()
				w.wire.Blackhole(farAddr, true)
				time.Sleep(c.silence)
				if c.down {
					require.Greater(w, w.wire.Dials(farAddr), 1, "noticed")
					s.down()
				} else {
					s.nothing("not seen downstream")
				}
				w.wire.Blackhole(farAddr, false)
				time.Sleep(30 * time.Second)
				if c.down {
					s.up()
				}
				s.nothing("back as before")
				open, _ := w.far.Streams()
				require.Equal(w, 1, open)
			})
		})
	}
}

func TestBlackHole_IsNoticedInUnder30s(t *testing.T) {
	inBubble(t, func(w *world) {
		w.establish(1)
		time.Sleep(time.Minute)
		w.wire.Blackhole(farAddr, true)
		time.Sleep(30 * time.Second)
		require.Greater(w, w.wire.Dials(farAddr), 1)
	})
}

func TestRequest_WaitsForAHopThatComesBack(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wire.Refuse(farAddr, true)
		time.AfterFunc(8*time.Second, func() { w.wire.Refuse(farAddr, false) })
		_, err := w.request(newRequest(1))
		require.NoError(w, err, "retried until a second before the caller's deadline")
	})
}

func TestRequest_ErrorComesBeforeTheCallersDeadline(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wire.Refuse(farAddr, true)
		began := time.Now()
		_, err := w.request(newRequest(1))
		require.Equal(w, codes.Unavailable, status.Code(err), "%v", err)
		require.Less(w, time.Since(began), callTime)
		require.Greater(w, time.Since(began), callTime-3*time.Second)
	})
}

func TestRequest_SlowFarSideIsNotBounded(t *testing.T) {
	inBubble(t, func(w *world) {
		w.far.Set(lbtest.Faults{RequestDelay: callTime - 100*time.Millisecond})
		w.establish(1)
		require.Len(w, w.far.Requests(), 1)
	})
}

func TestRequest_FarSidesErrorIsNotRetried(t *testing.T) {
	inBubble(t, func(w *world) {
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unavailable, "the endpoint is gone")})
		began := time.Now()
		_, err := w.request(newRequest(1))
		require.Equal(w, codes.Unavailable, status.Code(err), "%v", err)
		require.Contains(w, err.Error(), "the endpoint is gone")
		require.Less(w, time.Since(began), time.Second)
		require.Len(w, w.far.Requests(), 1)
	})
}

func TestMovedRemote_IsFollowedInPlace(t *testing.T) {
	for name, leave := range map[string]func(w *world){
		"old address refuses": func(w *world) {
			w.wire.Refuse(farAddr, true)
			w.wire.Cut(farAddr)
		},
		"old address is a black hole": func(w *world) { w.wire.Blackhole(farAddr, true) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s, conn := w.watched(1)
				defer s.end()
				defer w.serve(otherAddr, w.far.Register)()
				w.remote.set(endpointName, "tcp://"+otherAddr)
				leave(w)
				time.Sleep(25 * time.Second)
				refreshed, err := w.request(again(conn))
				require.NoError(w, err)
				require.Equal(w, ids(conn), ids(refreshed))
				s.up()
				require.Empty(w, w.far.Closes())
				time.Sleep(2 * time.Minute)
				require.Zero(w, w.wire.Open(farAddr), "the old hop is released")
				w.far.Say(setState(networkservice.State_DOWN))
				s.down()
			})
		})
	}
}

func TestMovedRemote_IsFollowedWithoutARequest(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		time.Sleep(time.Minute)
		defer w.serve(otherAddr, w.far.Register)()
		w.remote.set(endpointName, "tcp://"+otherAddr)
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		time.Sleep(nsmgrproxy.DefaultMonitorGrace / 2)
		require.Equal(w, 1, w.wire.Dials(otherAddr), "found inside the grace")
		time.Sleep(time.Minute)
		s.nothing("no refresh fell into it, and none was needed")
		last := w.far.Requests()[len(w.far.Requests())-1].GetConnection()
		require.Equal(w, ids(conn), ids(last))
		require.Empty(w, w.far.Closes())
		w.far.Say(setState(networkservice.State_DOWN))
		s.down()
	})
}

func TestMovedEndpoint_IsFollowedWhenTheOldPlaceAnswersAnError(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		time.Sleep(time.Minute)
		other := lbtest.NewPeer("far")
		defer w.serve(otherAddr, other.Register)()
		w.remote.set(endpointName, "tcp://"+otherAddr)
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "no such endpoint here")})
		_, err := w.request(again(conn))
		require.NoError(w, err)
		require.Len(w, other.Requests(), 1)
	})
}

func TestInbound_NamesAreStrippedAndGivenBack(t *testing.T) {
	inBubble(t, func(w *world) {
		w.local.set("endpoint", "tcp://"+farAddr)
		w.remote.set(endpointName, "tcp://"+proxyAddr)
		s, conn := w.watched(1)
		defer s.end()
		require.Equal(w, endpointName, conn.GetNetworkServiceEndpointName())
		require.Equal(w, serviceName, conn.GetNetworkService())
		got := w.far.Requests()[0].GetConnection()
		require.Equal(w, "endpoint", got.GetNetworkServiceEndpointName())
		require.Equal(w, "service", got.GetNetworkService())

		finds := w.local.asked()
		conn = w.refreshing(s, conn, 1)
		require.Equal(w, finds, w.local.asked(), "a refresh looks nothing up")
		require.NoError(w, w.close(conn))
		require.Equal(w, "endpoint", w.far.Closes()[0].GetNetworkServiceEndpointName())
	})
}

func TestInbound_GraceIsTheLocalOne(t *testing.T) {
	inBubble(t, func(w *world) {
		w.local.set("endpoint", "tcp://"+farAddr)
		s, _ := w.watched(1)
		defer s.end()
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		time.Sleep(nsmgrproxy.DefaultMonitorLocalGrace - time.Millisecond)
		s.nothing("inside the grace")
		time.Sleep(2 * time.Millisecond)
		s.down()
	})
}

func TestFloating_LeadsToWhereItWasRegisteredFrom(t *testing.T) {
	inBubble(t, func(w *world) {
		ctx, cancel := call()
		defer cancel()
		nse := &registry.NetworkServiceEndpoint{Name: "endpoint@floating", Url: "tcp://" + farAddr}
		registered, err := registry.NewNetworkServiceEndpointRegistryClient(w.cc).Register(ctx, nse)
		require.NoError(w, err)
		require.Equal(w, "tcp://"+farAddr, registered.GetUrl())
		require.Equal(w, "tcp://"+proxyAddr, w.remote.urls["endpoint@floating"], "others reach it through the proxy")

		r := newRequest(1)
		r.Connection.NetworkServiceEndpointName = "endpoint@floating"
		_, err = w.request(r)
		require.NoError(w, err)
		require.Equal(w, "endpoint@floating", w.far.Requests()[0].GetConnection().GetNetworkServiceEndpointName())
	})
}

func TestUnknownEndpoint_IsRefusedAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		r := newRequest(1)
		r.Connection.NetworkServiceEndpointName = "nobody@cluster2"
		began := time.Now()
		_, err := w.request(r)
		require.Equal(w, codes.FailedPrecondition, status.Code(err), "%v", err)
		require.Less(w, time.Since(began), time.Second)
	})
}

func TestRestart_RefreshAndCloseAreTakenOverInPlace(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		other := w.establish(2)
		w.stop()
		w.start()
		synctest.Wait()
		w.cc.ResetConnectBackoff()

		s := w.subscribe(1)
		defer s.end()
		refreshed, err := w.request(again(conn))
		require.NoError(w, err)
		require.Equal(w, ids(conn), ids(refreshed), "adopted with all its ids")
		s.up()
		require.Empty(w, w.far.Closes())

		require.NoError(w, w.close(other))
		require.Len(w, w.far.Closes(), 1, "a Close is not swallowed")
		require.Len(w, w.far.Conns(), 1)
	})
}

func TestManyLegs_OneCutIsNothingToAnyOfThem(t *testing.T) {
	const legs = 200
	inBubble(t, func(w *world) {
		var subscribers []*subscriber
		for n := range legs {
			s := w.subscribe(n)
			defer s.end()
			subscribers = append(subscribers, s)
			w.establish(n)
			s.up()
		}
		require.Equal(w, 1, w.wire.Dials(farAddr), "one hop for all")
		w.wire.Cut(farAddr)
		time.Sleep(3 * time.Second)
		open, _ := w.far.Streams()
		require.Equal(w, legs, open, "all resumed within 3 s")
		require.Equal(w, 2, w.wire.Dials(farAddr))
		for _, s := range subscribers {
			s.nothing("a cut is not seen")
		}
	})
}

// A part behind the far side that rotates between its handshake and its token is
// refused by the one after it. The next try is right.
func TestRefresh_ThatIsRefusedIsTriedOnceMore(t *testing.T) {
	refused := status.Error(codes.PermissionDenied, "no sufficient privileges")
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		w.far.Set(lbtest.Faults{RequestError: refused})
		time.AfterFunc(50*time.Millisecond, func() { w.far.Set(lbtest.Faults{}) })
		refreshed, err := w.request(again(conn))
		require.NoError(w, err)
		require.Equal(w, ids(conn), ids(refreshed))
		s.up()
		require.Len(w, w.far.Requests(), 3)

		w.far.Set(lbtest.Faults{RequestError: refused})
		_, err = w.request(again(conn))
		require.Equal(w, codes.PermissionDenied, status.Code(err), "%v", err)
		require.Len(w, w.far.Requests(), 5)
		s.nothing("a refresh that fails is no event")
		require.Empty(w, w.far.Closes())

		_, err = w.request(newRequest(2))
		require.Equal(w, codes.PermissionDenied, status.Code(err), "%v", err)
		require.Len(w, w.far.Requests(), 6, "a first Request may be refused for good")
	})
}

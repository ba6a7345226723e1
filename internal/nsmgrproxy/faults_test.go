package nsmgrproxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// reselect is what heal sends when it gives an endpoint up for another.
func reselect(conn *networkservice.Connection, endpoint string) *networkservice.NetworkServiceRequest {
	r := newRequest(1)
	r.Connection = conn.Clone()
	r.Connection.State = networkservice.State_RESELECT_REQUESTED
	r.Connection.Mechanism = nil
	r.Connection.NetworkServiceEndpointName = endpoint
	return r
}

func TestGrace_RunsFromTheLastAnswerToo(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		w.far.Set(lbtest.Faults{MonitorSilent: true})
		w.far.EndStreams()
		time.Sleep(nsmgrproxy.DefaultMonitorGrace - 100*time.Millisecond)
		_, err := w.request(again(conn))
		require.NoError(w, err)
		s.up()
		time.Sleep(nsmgrproxy.DefaultMonitorGrace - time.Second)
		s.nothing("the far side answered inside the grace")
	})
}

func TestDeletedByTheFarSide_IsNotBroughtBackByACut(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		w.far.Delete()
		s.down()
		w.wire.Cut(farAddr)
		time.Sleep(time.Minute)
		require.Len(w, w.far.Requests(), 1)
		s.nothing("after the DOWN")
	})
}

func TestBlackHole_HoldsNeitherCloseNorReselect(t *testing.T) {
	for name, act := range map[string]func(w *world, conn *networkservice.Connection) error{
		"Close": func(w *world, conn *networkservice.Connection) error { return w.close(conn) },
		"reselect": func(w *world, conn *networkservice.Connection) error {
			_, err := w.request(reselect(conn, "endpoint2@cluster3"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				conn := w.establish(1)
				other := lbtest.NewPeer("other")
				defer w.serve(otherAddr, other.Register)()
				w.remote.set("endpoint2@cluster3", "tcp://"+otherAddr)
				w.wire.Blackhole(farAddr, true)
				began := time.Now()
				require.NoError(w, act(w, conn))
				require.LessOrEqual(w, time.Since(began), 1100*time.Millisecond)
				w.wire.Blackhole(farAddr, false)
				time.Sleep(40 * time.Second)
				require.Len(w, w.far.Closes(), 1, "the old leg is closed when its hop is back")
				require.Empty(w, w.far.Conns())
			})
		})
	}
}

func TestClose_FollowsARemoteThatMoved(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		time.Sleep(time.Minute)
		defer w.serve(otherAddr, w.far.Register)()
		w.remote.set(endpointName, "tcp://"+otherAddr)
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		require.NoError(w, w.close(conn))
		time.Sleep(time.Minute)
		require.Len(w, w.far.Closes(), 1)
	})
}

// An expiry can go back where a certificate caps it.
func TestResume_WithAnEarlierExpiry(t *testing.T) {
	earlier := func(conn *networkservice.Connection) {
		segment := conn.Path.PathSegments[4]
		segment.Expires = timestamppb.New(segment.Expires.AsTime().Add(-time.Second))
	}
	t.Run("an old state is not believed: the far side is asked", func(t *testing.T) {
		inBubble(t, func(w *world) {
			s, _ := w.watched(1)
			defer s.end()
			w.far.Think(func(conn *networkservice.Connection) { conn.State = networkservice.State_DOWN; earlier(conn) })
			w.wire.Cut(farAddr)
			time.Sleep(10 * time.Second)
			s.nothing("it says UP when asked")
			require.Len(w, w.far.Requests(), 2)
			w.far.Say(setState(networkservice.State_DOWN))
			s.down()
		})
	})
	t.Run("it is gone when asked", func(t *testing.T) {
		inBubble(t, func(w *world) {
			s, _ := w.watched(1)
			defer s.end()
			w.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "gone")})
			w.far.Think(func(conn *networkservice.Connection) { conn.State = networkservice.State_DOWN; earlier(conn) })
			w.wire.Cut(farAddr)
			time.Sleep(nsmgrproxy.DefaultMonitorGrace + 5*time.Second)
			s.down()
		})
	})
	t.Run("UP after a loss that was told", func(t *testing.T) {
		inBubble(t, func(w *world) {
			s, _ := w.watched(1)
			defer s.end()
			w.wire.Refuse(farAddr, true)
			w.wire.Cut(farAddr)
			time.Sleep(40 * time.Second)
			s.down()
			w.far.Think(earlier)
			w.wire.Refuse(farAddr, false)
			time.Sleep(20 * time.Second)
			s.up()
		})
	})
}

func TestRecovery_IsSpread(t *testing.T) {
	const legs = 300
	for _, refreshed := range []bool{false, true} {
		t.Run(fmt.Sprintf("refreshed %t", refreshed), func(t *testing.T) {
			inBubble(t, func(w *world) {
				for n := range legs {
					conn := w.establish(n)
					if refreshed {
						_, err := w.request(again(conn))
						require.NoError(w, err)
					}
				}
				time.Sleep(10 * time.Second)
				w.far.EndStreams() // the hop stays: only the pauses matter
				time.Sleep(10 * time.Millisecond)
				open, _ := w.far.Streams()
				require.Less(w, open, legs/3, "resumed within 10 ms of a window of %d ms", 2*legs)
				time.Sleep(time.Second)
				open, _ = w.far.Streams()
				require.Equal(w, legs, open)
			})
		})
	}
}

func TestLookups_AreSharedByTheLegsOfALostHop(t *testing.T) {
	const legs = 50
	inBubble(t, func(w *world) {
		var conns []*networkservice.Connection
		for n := range legs {
			conns = append(conns, w.establish(n))
		}
		finds := w.remote.asked() + w.local.asked()
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		var wg sync.WaitGroup
		for _, conn := range conns {
			wg.Go(func() { _, _ = w.request(again(conn)) })
		}
		wg.Wait()
		w.wire.Refuse(farAddr, false)
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "restarting")})
		w.far.Forget()
		w.wire.Cut(farAddr)
		time.Sleep(nsmgrproxy.DefaultMonitorGrace)
		require.Less(w, w.remote.asked()+w.local.asked()-finds, legs, "one name, 45 s")
	})
}

// oddPeer is a far side whose answers are not what was agreed.
type oddPeer struct {
	*lbtest.Peer
	spoil func(*networkservice.Connection)
}

func (p *oddPeer) Request(ctx context.Context, r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	conn, err := p.Peer.Request(ctx, r)
	if err == nil {
		p.spoil(conn)
	}
	return conn, err
}

func TestOddAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*networkservice.Connection)
		code  codes.Code
	}{
		"no path":       {func(c *networkservice.Connection) { c.Path = nil }, codes.Internal},
		"shorter path":  {func(c *networkservice.Connection) { c.Path.PathSegments = c.Path.PathSegments[:2] }, codes.Internal},
		"empty":         {func(c *networkservice.Connection) { c.Reset() }, codes.Internal},
		"another's id":  {func(c *networkservice.Connection) { c.Path.PathSegments[3].Id = "x" }, codes.Internal},
		"index too far": {func(c *networkservice.Connection) { c.Path.Index = 77 }, codes.OK},
		"its own place": {func(c *networkservice.Connection) { c.Path.Index = 4; c.Id = c.Path.PathSegments[4].Id }, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				odd := &oddPeer{Peer: w.far, spoil: c.spoil}
				defer w.serve(otherAddr, func(s *grpc.Server) {
					networkservice.RegisterNetworkServiceServer(s, odd)
					networkservice.RegisterMonitorConnectionServer(s, odd)
				})()
				w.remote.set(endpointName, "tcp://"+otherAddr)
				s := w.subscribe(1)
				defer s.end()
				conn, err := w.request(newRequest(1))
				require.Equal(w, c.code, status.Code(err), "%v", err)
				if err != nil {
					s.nothing("no leg")
					return
				}
				s.up()
				require.Equal(w, "forwarder-1", conn.GetId())
				w.refreshing(s, conn, 2)
			})
		})
	}
}

// A balancer's address in front of ourselves looks like any other.
func TestSelf_ReachedByAnotherAddressIsInbound(t *testing.T) {
	const alias = "203.0.113.1:5004"
	for name, c := range map[string]struct {
		local bool
		code  codes.Code
	}{
		"the endpoint is here":     {true, codes.OK},
		"the endpoint is not here": {false, codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				defer w.forward(alias, proxyAddr)()
				w.remote.set("mine@cluster1", "tcp://"+alias)
				r := newRequest(1)
				r.Connection.NetworkServiceEndpointName = "mine@cluster1"
				// Learned as of another domain, which a first look-up here hides.
				r.Connection.Path.PathSegments = append(r.Connection.Path.PathSegments, &networkservice.PathSegment{Name: "proxy", Id: "p"}, &networkservice.PathSegment{Name: "next", Id: "n"})
				if c.local {
					w.local.set("mine", "tcp://"+farAddr)
				}
				began := time.Now()
				_, err := w.request(r)
				require.Equal(w, c.code, status.Code(err), "%v", err)
				require.Less(w, time.Since(began), time.Second)
				if c.local {
					require.Equal(w, "mine", w.far.Requests()[0].GetConnection().GetNetworkServiceEndpointName())
				}
			})
		})
	}
}

// forward is a balancer that only passes on.
func (w *world) forward(from, to string) (stop func()) {
	listener := w.wire.Listen(from)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := w.wire.Dial(context.Background(), to)
			if err != nil {
				_ = in.Close()
				continue
			}
			for a, b := range map[net.Conn]net.Conn{in: out, out: in} {
				wg.Go(func() {
					_, _ = io.Copy(a, b)
					_ = a.Close()
				})
			}
		}
	})
	return func() {
		_ = listener.Close()
		w.stop()
		wg.Wait()
	}
}

func TestAnotherLegOfOurIDAtTheFarSide_IsNotOurs(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		// What an abandoned Request leaves behind, or a far side that was restarted
		// under another name: a second leg with our id at our place.
		ghost := again(conn)
		ghost.Connection.Path.PathSegments = ghost.Connection.Path.PathSegments[:4]
		ghost.Connection.Path.Index, ghost.Connection.Id = 3, ghost.Connection.Path.PathSegments[3].Id
		ctx, cancel := call()
		defer cancel()
		cc, err := grpc.NewClient("passthrough:///"+farAddr, w.dialOptions()...)
		require.NoError(w, err)
		defer func() { require.NoError(w, cc.Close()) }()
		answer, err := networkservice.NewNetworkServiceClient(cc).Request(ctx, ghost)
		require.NoError(w, err)
		s.nothing("the ghost's UPDATE")
		_, err = networkservice.NewNetworkServiceClient(cc).Close(ctx, answer)
		require.NoError(w, err)
		s.nothing("the ghost's DELETE")
		w.far.Say(setState(networkservice.State_DOWN))
		s.down()
	})
}

func TestRestart_OutboundLegIsNotTurnedInbound(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		local := lbtest.NewPeer("local")
		defer w.serve(otherAddr, local.Register)()
		w.local.set("endpoint", "tcp://"+otherAddr) // came later, with the same bare name
		w.stop()
		w.start()
		synctest.Wait()
		w.cc.ResetConnectBackoff()
		_, err := w.request(again(conn))
		require.NoError(w, err)
		require.Empty(w, local.Requests())
	})
}

func TestGraceZero_EveryLossIsTold(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		s.down()
		time.Sleep(20 * time.Second)
		s.nothing("once")
		w.wire.Refuse(farAddr, false)
		time.Sleep(10 * time.Second)
		s.up()
	}, nsmgrproxy.WithMonitorGrace(0, 0))
}

func TestRestart_FloatingConnectionIsAdopted(t *testing.T) {
	inBubble(t, func(w *world) {
		ctx, cancel := call()
		defer cancel()
		_, err := registry.NewNetworkServiceEndpointRegistryClient(w.cc).Register(ctx, &registry.NetworkServiceEndpoint{Name: "endpoint@floating", Url: "tcp://" + farAddr})
		require.NoError(w, err)
		r := newRequest(1)
		r.Connection.NetworkServiceEndpointName = "endpoint@floating"
		conn, err := w.request(r)
		require.NoError(w, err)
		// The forwarder of its node is registered in this domain.
		w.local.set(conn.GetPath().GetPathSegments()[5].GetName(), "tcp://"+farAddr)
		w.stop()
		w.start()
		synctest.Wait()
		w.cc.ResetConnectBackoff()
		refreshed, err := w.request(again(conn))
		require.NoError(w, err)
		require.Equal(w, ids(conn), ids(refreshed))
		require.Equal(w, "endpoint@floating", w.far.Requests()[1].GetConnection().GetNetworkServiceEndpointName())
		require.Len(w, w.far.Conns(), 1)
	})
}

// A Request that began beside a slower one is looked after when that one has been
// answered: the refresh is answered from memory, and not by its caller's deadline.
func TestBlackHole_IsNoticedForEveryRequest(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		other := w.establish(2)
		w.far.Set(lbtest.Faults{RequestDelay: 5 * time.Second})
		answered := make(chan error, 1)
		go func() {
			_, err := w.request(again(other))
			answered <- err
		}()
		time.Sleep(time.Second)
		w.far.Set(lbtest.Faults{RequestDelay: 8 * time.Second})
		hole := time.AfterFunc(4500*time.Millisecond, func() { w.wire.Blackhole(farAddr, true) })
		defer hole.Stop()
		_, err := w.request(again(conn))
		require.NoError(w, err)
		require.NoError(w, <-answered)
		s.up()
		s.nothing("no DOWN")
	})
}

// The far side had acted on a first Request whose answer was lost. It cannot know the
// second for the same, and is left with one connection all the same.
func TestFirstRequest_CutInMidCallLeavesNoSecondLeg(t *testing.T) {
	inBubble(t, func(w *world) {
		s := w.subscribe(1)
		defer s.end()
		w.far.Set(lbtest.Faults{RequestDelay: 2 * time.Second})
		cut := time.AfterFunc(time.Second, func() {
			w.far.Set(lbtest.Faults{})
			w.wire.Cut(farAddr)
		})
		defer cut.Stop()
		conn, err := w.request(newRequest(1))
		require.NoError(w, err)
		time.Sleep(20 * time.Second)
		require.Len(w, w.far.Requests(), 2)
		require.Len(w, w.far.Closes(), 1, "the ghost")
		require.Len(w, w.far.Conns(), 1)
		require.Contains(w, w.far.Conns(), conn.GetPath().GetPathSegments()[4].GetId(), "what was answered stays")
		s.up()
		s.nothing("no word of the other")
		conn = w.refreshing(s, conn, 2)
		require.NoError(w, w.close(conn))
		require.Empty(w, w.far.Conns())
	})
}

// A black hole on a hop whose legs wait for their initial states is found out by these,
// long before the ping behind the probe.
func TestBlackHole_IsNoticedByAnInitialStateThatDoesNotCome(t *testing.T) {
	inBubble(t, func(w *world) {
		s, _ := w.watched(1)
		defer s.end()
		w.far.Set(lbtest.Faults{MonitorDelay: time.Second})
		w.far.EndStreams()
		time.Sleep(500 * time.Millisecond)
		dials := w.wire.Dials(farAddr)
		w.wire.Blackhole(farAddr, true)
		time.Sleep(10 * time.Second)
		require.Greater(w, w.wire.Dials(farAddr), dials, "dialled anew")
		w.wire.Blackhole(farAddr, false)
		time.Sleep(10 * time.Second)
		open, _ := w.far.Streams()
		require.Equal(w, 1, open)
		s.nothing("all inside the grace")
	})
}

// A client that is told an error closes soon: the DOWN behind it does not wait for
// the next attempt at a stream.
func TestOutage_RefusedRefreshHasTheStreamResumedAtOnce(t *testing.T) {
	for after := 6 * time.Second; after < 20*time.Second; after += 700 * time.Millisecond {
		inBubble(t, func(w *world) {
			s, conn := w.watched(1)
			defer s.end()
			w.far.Set(lbtest.Faults{MonitorError: status.Error(codes.Unavailable, "not yet")})
			w.wire.Cut(farAddr)
			w.far.Say(setState(networkservice.State_DOWN)) // the endpoint dies
			time.Sleep(after)
			w.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "no endpoint")})
			_, err := w.request(again(conn))
			require.Equal(w, codes.Unknown, status.Code(err), "%v", err)
			time.Sleep(50 * time.Millisecond)
			s.down()
			time.Sleep(time.Minute)
			s.nothing("once")
		})
	}
}

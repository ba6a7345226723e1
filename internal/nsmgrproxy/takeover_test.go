package nsmgrproxy_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/authz"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// abandonedAfterARestart is a connection whose first refresh at a new process is
// still in flight when its caller has given it up.
func abandonedAfterARestart(w *world) *networkservice.Connection {
	w.Helper()
	conn := w.establish(1)
	w.stop()
	w.start()
	w.cc.ResetConnectBackoff()
	w.far.Set(lbtest.Faults{RequestDelay: slow})
	_, err := w.request(again(conn))
	require.Error(w, err)
	return conn
}

func TestTakenUpAgainThenClosedThenAskedAnew(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := abandonedAfterARestart(w)
		w.far.Set(lbtest.Faults{})
		conn, err := w.request(again(conn)) // while the first is still in flight
		require.NoError(w, err)
		require.NoError(w, w.close(conn))
		_, err = w.request(retried(1, 1)) // same client, new ids
		require.NoError(w, err)
	})
}

func TestAbandonedRefreshAfterARestartIsKept(t *testing.T) {
	inBubble(t, func(w *world) {
		abandonedAfterARestart(w)
		time.Sleep(slow)
		require.Empty(w, w.far.Closes(), "an abandoned refresh is kept")
		require.Len(w, w.far.Conns(), 1)
	})
}

func TestTakenOverThenFailed(t *testing.T) {
	for name, again := range map[string]func(try int) *networkservice.NetworkServiceRequest{
		"new ids":  func(try int) *networkservice.NetworkServiceRequest { return retried(1, try) },
		"same ids": func(int) *networkservice.NetworkServiceRequest { return newRequest(1) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.far.Set(lbtest.Faults{RequestDelay: slow})
				_, err := w.request(newRequest(1))
				require.Error(w, err)
				w.far.Set(lbtest.Faults{RequestError: status.Error(codes.ResourceExhausted, "no")})
				_, err = w.request(again(1))
				require.Equal(w, codes.ResourceExhausted, status.Code(err), "%v", err)
				time.Sleep(2 * time.Minute)
				require.Empty(w, w.far.Conns(), "nobody has it, nobody will close it before the tokens run out")
			})
		})
	}
}

func TestTwoRefreshesInOneOutageAreDelivered(t *testing.T) {
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		time.Sleep(time.Minute)
		end := outages["at its start"](w)
		conn, err := w.request(again(conn))
		require.NoError(w, err)
		time.Sleep(3 * time.Second)
		conn, err = w.request(again(conn))
		require.NoError(w, err)
		asked := len(w.far.Requests())
		time.Sleep(3 * time.Second)
		end()
		time.Sleep(time.Minute)
		require.Greater(w, len(w.far.Requests()), asked, "delivered")
		last := w.far.Requests()[len(w.far.Requests())-1].GetConnection()
		require.Equal(w, conn.GetPath().GetPathSegments()[2].GetExpires().AsTime(), last.GetPath().GetPathSegments()[2].GetExpires().AsTime())
	})
}

func TestCloseAfterRestartByAnAliasOfOurs(t *testing.T) {
	const alias = "203.0.113.1:5004"
	inBubble(t, func(w *world) {
		w.remote.set("mine@cluster1", "tcp://"+alias)
		w.local.set("mine", "tcp://"+farAddr)
		stop := w.forward(alias, proxyAddr)
		r := newRequest(1)
		r.Connection.NetworkServiceEndpointName, r.Connection.NetworkService = "mine@cluster1", "service@cluster1"
		conn, err := w.request(r)
		require.NoError(w, err)
		require.Len(w, w.far.Conns(), 1)
		w.stop()
		w.start()
		require.NoError(w, w.close(conn))
		time.Sleep(5 * time.Minute)
		stop()
		require.Empty(w, w.far.Conns(), "closed")
	})
}

// restartWithoutRegistries puts another process in the proxy's place while both
// registries are away. Back brings them back.
func (w *world) restartWithoutRegistries() (back func()) {
	registries := []string{registryAddr, registryProxyAddr}
	w.stop()
	for _, addr := range registries {
		w.wire.Refuse(addr, true)
		w.wire.Cut(addr)
	}
	w.start()
	w.cc.ResetConnectBackoff()
	return func() {
		for _, addr := range registries {
			w.wire.Refuse(addr, false)
		}
	}
}

// Where a Close leads has to be looked up after a restart. If that cannot be, it goes on
// behind its caller, as one does whose hop is down.
func TestCloseAfterARestartWhileTheRegistryIsDown(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		back := w.restartWithoutRegistries()
		s := w.subscribe(1)
		defer s.end()
		began := time.Now()
		require.NoError(w, w.close(conn))
		require.Equal(w, time.Second, time.Since(began))
		time.Sleep(10 * time.Second)
		require.Len(w, w.far.Conns(), 1)
		back()
		time.Sleep(15 * time.Second)
		require.Len(w, w.far.Closes(), 1)
		require.Empty(w, w.far.Conns())
		s.states("DELETE")
		require.Zero(w, nsmgrproxy.HeldBy(w.chain).Legs)
	})
}

func TestCloseAfterARestartGivesWayToANewRequest(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		back := w.restartWithoutRegistries()
		require.NoError(w, w.close(conn))
		back()
		_, err := w.request(again(conn))
		require.NoError(w, err)
		time.Sleep(time.Minute)
		require.Len(w, w.far.Conns(), 1)
	})
}

func TestSlowRequestInTheDrain(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		asked := len(w.far.Requests())
		w.far.Set(lbtest.Faults{RequestDelay: 7 * time.Second})
		answered := make(chan error, 1)
		go func() {
			_, err := w.request(again(conn))
			answered <- err
		}()
		time.Sleep(5 * time.Second)
		w.drain() // 3 s: the answer comes after 2
		require.NoError(w, <-answered)
		require.Len(w, w.far.Requests(), asked+1)
		w.stop()
	})
}

func TestShortRequestInTheDrain(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		w.far.Set(lbtest.Faults{RequestDelay: 4 * time.Second})
		answered := make(chan error, 1)
		go func() {
			_, err := w.request(again(conn))
			answered <- err
		}()
		time.Sleep(2 * time.Second)
		w.drain() // 3 s: the answer comes after 2
		require.NoError(w, <-answered)
		w.stop()
	})
}

// policy denies on request.
type policy struct{ deny atomic.Bool }

func (*policy) Name() string { return "on request" }
func (p *policy) Check(context.Context, any) error {
	if p.deny.Load() {
		return status.Error(codes.PermissionDenied, "denied")
	}
	return nil
}

func TestRefusedCloseLeavesTheLegAsItWas(t *testing.T) {
	p := new(policy)
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		p.deny.Store(true)
		require.Equal(w, codes.PermissionDenied, status.Code(w.close(conn)))
		p.deny.Store(false)
		time.Sleep(tokenTime + time.Minute)
		require.Len(w, w.far.Closes(), 1, "the tokens ran out long ago")
		open, _ := w.far.Streams()
		require.Zero(w, open, "nobody watches it")
	}, nsmgrproxy.WithGate(authz.NewGate([]authz.Policy{p}, testToken)))
}

func TestRefusedReselectTouchesNothing(t *testing.T) {
	p := new(byToken)
	inBubble(t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		r := reselect(conn, endpointName)
		r.Connection.Labels = map[string]string{}
		p.only.Store(&conn.GetPath().GetPathSegments()[2].Token)
		// Another peer, with another token.
		ctx, cancel := context.WithTimeout(withToken(context.Background(), tokenTime/2), callTime)
		defer cancel()
		_, err := networkservice.NewNetworkServiceClient(w.cc).Request(ctx, r)
		require.Equal(w, codes.PermissionDenied, status.Code(err), "%v", err)
		events := s.next()
		t.Logf("events: %v", events)
		require.Empty(w, w.far.Closes(), "a stranger's word has closed the leg")
	}, nsmgrproxy.WithGate(authz.NewGate([]authz.Policy{p}, testToken)))
}

type byToken struct{ only atomic.Pointer[string] }

func (*byToken) Name() string { return "by token" }
func (p *byToken) Check(_ context.Context, input any) error {
	path, ok := input.(*networkservice.Path)
	only := p.only.Load()
	if !ok || only == nil || path.GetPathSegments()[2].GetToken() == *only {
		return nil
	}
	return status.Error(codes.PermissionDenied, "denied")
}

func TestFloating_EndpointThatMovedToAnotherDomainIsFollowed(t *testing.T) {
	inBubble(t, func(w *world) {
		const name = "endpoint@floating"
		ctx, cancel := call()
		defer cancel()
		gone := &registry.NetworkServiceEndpoint{Name: name, Url: "tcp://10.9.9.9:1"} // died, never unregistered
		_, err := registry.NewNetworkServiceEndpointRegistryClient(w.cc).Register(ctx, gone)
		require.NoError(w, err)
		time.Sleep(time.Minute)
		w.remote.set(name, "tcp://"+farAddr)
		for n := range 2 {
			floating := newRequest(n)
			floating.Connection.NetworkServiceEndpointName = name
			began := time.Now()
			_, err = w.request(floating)
			require.NoError(w, err)
			if n > 0 {
				require.Zero(w, time.Since(began), "known by then")
			}
		}
		require.Len(w, w.far.Conns(), 2)
	})
}

// A Close that waited for a refresh, both the first that a restarted proxy hears of the
// connection, goes through when that fails.
func TestCloseAfterARestartBehindARefreshThatFails(t *testing.T) {
	inBubble(t, func(w *world) {
		conn := w.establish(1)
		w.stop()
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		w.start()
		w.cc.ResetConnectBackoff()
		go func() { _, _ = w.request(again(conn)) }()
		synctest.Wait()
		require.NoError(w, w.close(conn))
		time.Sleep(callTime)
		w.wire.Refuse(farAddr, false)
		time.Sleep(20 * time.Second)
		require.Len(w, w.far.Closes(), 1)
		require.Empty(w, w.far.Conns())
		require.Zero(w, nsmgrproxy.HeldBy(w.chain).Legs)
	})
}

// Two Closes of one connection go on behind their callers while its far side moves: the
// first gives way to the second, and leaves no hop in use.
func TestClose_ThatGivesWayLeavesNoHop(t *testing.T) {
	inBubble(t, func(w *world) {
		defer w.serve(otherAddr, w.far.Register)()
		conn := w.establish(1)
		w.wire.Refuse(farAddr, true)
		w.wire.Cut(farAddr)
		require.NoError(w, w.close(conn))
		require.NoError(w, w.close(conn))
		w.remote.set(endpointName, "tcp://"+otherAddr)
		time.Sleep(5 * time.Minute)
		require.Len(w, w.far.Closes(), 1)
		require.Zero(w, w.wire.Open(otherAddr), "a hop that nobody uses is closed")
	})
}

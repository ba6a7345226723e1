package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
)

// answer is a call that came back with a path of these ids.
func (s *script) answer(kind domain.Kind, from, to float64, ids ...string) {
	call := domain.Call{Conn: "c", Kind: kind, Start: s.at(from)}
	s.Started(call)
	call.End, call.Path = s.at(to), new(networkservice.Path)
	for _, id := range ids {
		call.Path.PathSegments = append(call.Path.PathSegments, &networkservice.PathSegment{Id: id})
	}
	s.Ended(call)
}

var path = []string{"c", "b", "d", "out", "in", "e", "f", "g"}

// soaked is a soak in which everything happens as the contract wants it.
func soaked() *script {
	s := newScript()
	s.answer(domain.First, 0, 1, path...)
	s.proxy(1.1, initial, up)
	s.Event(ledger.Client, "c", s.at(1.1), initial, up)

	s.Fault("outbound proxy killed")
	s.TroubleBegins(s.at(10), true)
	s.Event(ledger.Client, "c", s.at(10.1), update, down)
	s.call(domain.Refresh, 10.2, 11, errors.New("no such proxy"))
	s.answer(domain.Reselect, 12, 13, path...)
	s.proxy(13, update, up)
	s.Event(ledger.Client, "c", s.at(13), update, up)
	s.TroubleEnds(s.at(14))

	s.answer(domain.Refresh, 20, 20.1, path...)
	s.proxy(20.1, update, up)

	s.Fault("endpoint dies")
	s.TroubleBegins(s.at(30), false)
	s.EndpointKilled(s.at(30))
	s.proxy(30.02, update, down)
	s.Event(ledger.Client, "c", s.at(30.06), update, down)
	s.EndpointBack(s.at(33))
	s.answer(domain.Reselect, 34, 35, path...)
	s.proxy(35, update, up)
	s.TroubleEnds(s.at(36))
	return s
}

func TestGoodSoakHolds(t *testing.T) {
	s := soaked()
	require.Equal(t, ledger.Verdict{Held: true, UpdatesMin: 1, UpdatesMax: 1}, s.SoakVerdict())
	require.Equal(t, ledger.Counts{
		Refreshes: 1, RefreshFailures: 1, RefreshExcused: 1, Heals: 2, Adopted: 1,
		DownTrue: 1, ClientDownTrue: 1, ClientDownExcused: 1,
	}, s.Counts())
	require.Equal(t, map[string]int{"outbound proxy killed": 1, "endpoint dies": 1}, s.Faults())

	took, ok := s.DeathToDown(ledger.Proxy)
	require.True(t, ok)
	require.InDelta(t, 20*time.Millisecond, took, float64(time.Millisecond))
	took, ok = s.DeathToDown(ledger.Client)
	require.True(t, ok)
	require.InDelta(t, 60*time.Millisecond, took, float64(time.Millisecond))
}

// unheard is a death in a black hole, with a refresh in it that fails so, and a client
// that then closes.
func (s *script) unheard(refresh string) {
	s.TroubleBegins(s.at(40), false)
	s.EndpointKilledUnheard(s.at(40))
	s.call(domain.Refresh, 41, 44, errors.New(refresh))
	s.call(domain.Close, 45, 45.1, nil)
	s.proxy(45.1, remove, up)
	s.EndpointBack(s.at(50))
	s.answer(domain.Reselect, 51, 52, path...)
	s.proxy(52, update, up)
	s.TroubleEnds(s.at(53))
}

func TestDeathOfWhoHasLeft(t *testing.T) {
	s := soaked()
	s.unheard("rpc error: code = Unavailable desc = request: hop: far: no connection")
	require.Empty(t, s.SoakVerdict().Why)
	require.Equal(t, 1, s.Counts().LeftUnheard)

	told := soaked()
	told.unheard("rpc error: code = Unknown desc = no such endpoint")
	require.Equal(t, []string{"0 DOWN for the death of the endpoint, want 1"}, told.SoakVerdict().Why, "the far side could be asked")
	require.Zero(t, told.Counts().LeftUnheard)
}

func TestBreachesOfASoak(t *testing.T) {
	for name, tc := range map[string]struct {
		breach func(s *script)
		why    string
	}{
		"false DOWN": {
			func(s *script) { s.proxy(25, update, down) },
			"DOWN while the endpoint was alive",
		},
		"false DOWN of the proxy while neighbours may": {
			func(s *script) { s.proxy(13.5, update, down) },
			"DOWN while the endpoint was alive",
		},
		"false DOWN found when subscribing again": {
			func(s *script) { s.proxy(25, initial, down) },
			"DOWN while the endpoint was alive",
		},
		"false DOWN at the client only": {
			func(s *script) { s.Event(ledger.Client, "c", s.at(25), update, down) },
			"the client saw DOWN while the endpoint was alive",
		},
		"failed refresh": {
			func(s *script) { s.call(domain.Refresh, 25, 26, errors.New("unavailable")) },
			"refreshes failed",
		},
		"second DOWN for a death": {
			func(s *script) { s.proxy(31, update, down) },
			"2 DOWN for the death of the endpoint, want 1",
		},
		"two UPDATEs": {
			func(s *script) { s.proxy(20.2, update, up) },
			"not exactly one UPDATE for a refresh",
		},
		"refresh with another path": {
			func(s *script) {
				s.answer(domain.Refresh, 25, 25.1, "c", "b", "d", "other", "in", "e", "f", "g")
				s.proxy(25.1, update, up)
			},
			"a refresh came back with another path",
		},
		"DELETE": {
			func(s *script) { s.proxy(25, remove, up) },
			"DELETE without the client's Close",
		},
		"what the soak saw itself": {
			func(s *script) { s.Breach("not well again after: cut") },
			"not well again after: cut",
		},
		"not adopted": {
			func(s *script) {
				s.TroubleBegins(s.at(40), true)
				s.answer(domain.Reselect, 41, 42, "c", "b", "d", "new", "new", "new", "new", "new")
				s.proxy(42, update, up)
				s.TroubleEnds(s.at(43))
			},
			"not adopted after a restart of the outbound proxy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := soaked()
			tc.breach(s)
			require.Equal(t, []string{tc.why}, s.SoakVerdict().Why)
			require.False(t, s.SoakVerdict().Held)
		})
	}
}

// A subscriber that comes again while a connection is known to be DOWN is told
// nothing new.
func TestKnownDownIsNoOtherDown(t *testing.T) {
	s := soaked()
	s.EndpointKilled(s.at(40))
	s.proxy(40.1, update, down)
	s.proxy(41, initial, down)
	require.Equal(t, 2, s.Counts().DownTrue)
}

func TestUnheardDeathIsNoMeasure(t *testing.T) {
	s := newScript()
	s.EndpointKilledUnheard(s.at(10))
	s.proxy(25, update, down)
	require.Equal(t, 1, s.Counts().DownTrue)
	_, ok := s.DeathToDown(ledger.Proxy)
	require.False(t, ok)
}

// Nobody is alive at a proxy that has come back until it says so itself.
func TestRestartForgets(t *testing.T) {
	s := soaked()
	require.True(t, s.Alive(ledger.Proxy, "c"))
	s.TroubleBegins(s.at(40), true)
	require.False(t, s.Alive(ledger.Proxy, "c"))
	s.proxy(41, update, up)
	require.True(t, s.Alive(ledger.Proxy, "c"))
}

func TestLostStreams(t *testing.T) {
	s := soaked()
	lose := func() {
		s.StreamLost(0, "to:127.1.2.1:1", "out")
		s.StreamLost(0, "to:127.1.2.1:1", "other")
		s.StreamLost(1, "to:127.0.2.1:9", "in")
		require.Equal(t, 3, s.Lost())
	}
	lose()
	s.StreamFound("out")
	s.StreamFound("out")
	require.Equal(t, 2, s.Lost())

	lose()
	s.Moved("to:127.1.2.1:1") // back where it was: each says so itself
	s.Moved("to:127.0.1.1:5") // to somebody else
	require.Equal(t, 3, s.Lost())
	s.Moved("to:127.1.2.1:2")
	require.Equal(t, 1, s.Lost(), "those of the outbound proxy moved")

	lose()
	s.ProxyGone(1)
	require.Equal(t, 2, s.Lost())
	s.answer(domain.Reselect, 40, 41, path...)
	require.Equal(t, 1, s.Lost(), "another leg watches now")
}

func TestSlowestResume(t *testing.T) {
	s := newScript()
	slowest, open := s.SlowestResume()
	require.Zero(t, slowest)
	require.Zero(t, open)
	s.Cut(s.at(10), "idle")
	s.Cut(s.at(11), "idle") // again before it was resumed
	s.Resumed(s.at(11.5))
	s.Cut(s.at(20), "idle")
	slowest, open = s.SlowestResume()
	require.InDelta(t, 1500*time.Millisecond, slowest, float64(time.Millisecond))
	require.Equal(t, 1, open)
	s.Resumed(s.at(20.1))
	_, open = s.SlowestResume()
	require.Zero(t, open)
}

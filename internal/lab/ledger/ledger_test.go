package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	initial = networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER
	update  = networkservice.ConnectionEventType_UPDATE
	remove  = networkservice.ConnectionEventType_DELETE

	up       = networkservice.State_UP
	down     = networkservice.State_DOWN
	reselect = networkservice.State_RESELECT_REQUESTED
)

// script enters things at seconds of a made-up run.
type script struct {
	*ledger.Ledger
	zero time.Time
}

func newScript() *script { return &script{Ledger: ledger.New(), zero: time.Unix(1_000_000, 0)} }

func (s *script) at(seconds float64) time.Time {
	return s.zero.Add(time.Duration(seconds * float64(time.Second)))
}

func (s *script) call(kind domain.Kind, from, to float64, err error) {
	call := domain.Call{Conn: "c", Kind: kind, Start: s.at(from)}
	s.Started(call)
	call.End, call.Err = s.at(to), err
	s.Ended(call)
}

func (s *script) proxy(at float64, kind networkservice.ConnectionEventType, state networkservice.State) string {
	return s.Event(ledger.Proxy, "c", s.at(at), kind, state)
}

// established is what every run starts with.
func established() *script {
	s := newScript()
	s.call(domain.First, 0, 1, nil)
	s.Accepted(s.at(0.5))
	s.proxy(1.1, initial, up)
	return s
}

// good is a run in which everything happens as the contract wants it.
func good() *script {
	s := established()
	for _, at := range []float64{10, 20, 30} {
		s.call(domain.Refresh, at, at+0.1, nil)
		s.proxy(at+0.05, update, up)
	}
	s.Cut(s.at(40), "idle 8s")
	s.Accepted(s.at(40.1))
	s.Resumed(s.at(40.2))

	s.EndpointKilled(s.at(50))
	s.proxy(50.1, update, down)
	s.call(domain.Close, 50.2, 50.3, nil)
	s.proxy(50.3, remove, down)
	s.call(domain.Reselect, 50.4, 50.5, errors.New("nobody there"))
	s.EndpointBack(s.at(53))
	s.call(domain.Reselect, 53.1, 53.2, nil)
	s.proxy(53.2, update, up)
	return s
}

var everything = ledger.Expect{Refreshes: 3, Deaths: 1}

func TestGoodRunHolds(t *testing.T) {
	s := good()
	require.Equal(t, ledger.Verdict{Held: true, UpdatesMin: 1, UpdatesMax: 1}, s.Verdict(everything))
	require.Equal(t, ledger.Counts{Refreshes: 3, Dials: 2, Cuts: 1, Resumes: 1, DownTrue: 1, Heals: 1}, s.Counts())
	require.True(t, s.Alive(ledger.Proxy, "c"))
	require.False(t, s.Alive(ledger.Client, "c"), "nothing was said there")
}

// Every way to break the contract has to be seen, and seen as what it is.
func TestBreaches(t *testing.T) {
	for name, tc := range map[string]struct {
		breach func(s *script)
		why    string
	}{
		"false DOWN": {
			func(s *script) { s.proxy(40.1, update, down) },
			"DOWN while the endpoint was alive",
		},
		"false DOWN at the client only": {
			func(s *script) { s.Event(ledger.Client, "c", s.at(40.1), update, down) },
			"the client saw DOWN while the endpoint was alive",
		},
		"no UPDATE": {
			func(s *script) { s.call(domain.Refresh, 45, 45.1, nil) },
			"not exactly one UPDATE for a refresh",
		},
		"two UPDATEs": {
			func(s *script) {
				s.call(domain.Refresh, 45, 45.1, nil)
				s.proxy(45.1, update, up)
				s.proxy(45.1, update, up)
			},
			"not exactly one UPDATE for a refresh",
		},
		"UPDATE after a resume": {
			func(s *script) { s.proxy(40.2, update, up) },
			"not exactly one UPDATE for a refresh",
		},
		"two UPDATEs for a heal": {
			func(s *script) { s.proxy(53.3, update, up) },
			"not exactly one UPDATE for a heal",
		},
		"state of the far end": {
			func(s *script) { s.proxy(53.3, update, reselect) },
			"an event with state RESELECT_REQUESTED",
		},
		"DELETE": {
			func(s *script) { s.proxy(45, remove, up) },
			"DELETE without the client's Close",
		},
		"second DOWN for one death": {
			func(s *script) { s.proxy(51, update, down) },
			"2 DOWN for the death of the endpoint, want 1",
		},
		"dial by a refresh": {
			func(s *script) { s.Accepted(s.at(20.05)) },
			"upstream dials caused by a refresh",
		},
		"failed refresh": {
			func(s *script) { s.call(domain.Refresh, 45, 46, errors.New("unavailable")) },
			"refreshes failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			tc.breach(s)
			sorted := s.Verdict(everything)
			require.False(t, sorted.Held)
			require.Equal(t, []string{tc.why}, sorted.Why)
		})
	}
}

func TestWhatDidNotHappenIsNoProof(t *testing.T) {
	s := established()
	verdict := s.Verdict(everything)
	require.False(t, verdict.Held)
	require.Equal(t, []string{"0 endpoint deaths, want 1", "0 refreshes, want 3 or more"}, verdict.Why)
	require.True(t, s.Verdict(ledger.Expect{}).Held)
}

func TestDeathWithoutWordOrHeal(t *testing.T) {
	s := established()
	s.EndpointKilled(s.at(50))
	require.Equal(t, []string{
		"0 DOWN for the death of the endpoint, want 1",
		"not healed after the death of the endpoint",
	}, s.Verdict(ledger.Expect{Deaths: 1}).Why)
}

// A dial in the middle of a refresh is the cut's, if there was a cut.
func TestDialAfterCutIsNotTheRefreshs(t *testing.T) {
	s := established()
	s.call(domain.Refresh, 10, 11, nil)
	s.proxy(10.9, update, up)
	s.Cut(s.at(9.9), "idle 1s")
	s.Accepted(s.at(10.5))
	require.True(t, s.Verdict(ledger.Expect{}).Held)
	s.Accepted(s.at(10.6))
	require.Equal(t, 1, s.Verdict(ledger.Expect{}).RefreshDials)
}

// The DELETE of a heal's Close may be read after the heal's Request has left.
func TestLateDeleteBelongsToTheClose(t *testing.T) {
	s := good()
	s.Cut(s.at(60), "idle 8s")
	s.proxy(60.1, update, down) // stock
	s.call(domain.Close, 60.2, 60.3, nil)
	s.call(domain.Reselect, 60.31, 60.5, nil)
	s.proxy(60.35, remove, up)
	s.proxy(60.4, update, up)
	require.Equal(t, []string{"DOWN while the endpoint was alive"}, s.Verdict(everything).Why)
}

// What fails halfway is closed by the neighbours, and a Close that failed may
// still arrive. Neither explains a DELETE after a Request that succeeded.
func TestDeleteAfterAFailure(t *testing.T) {
	s := established()
	s.call(domain.Refresh, 10, 25, errors.New("deadline exceeded"))
	s.proxy(26, remove, up)
	s.call(domain.Close, 30, 31, errors.New("deadline exceeded"))
	s.proxy(45, remove, up)
	require.Zero(t, s.Verdict(ledger.Expect{}).Deletes)

	s.call(domain.Reselect, 50, 51, nil)
	s.proxy(51, update, up)
	s.proxy(60, remove, up)
	require.Equal(t, 1, s.Verdict(ledger.Expect{}).Deletes)
}

func TestReasons(t *testing.T) {
	s := established()
	require.Equal(t, "for a first Request", func() string { return newScriptInFirst().Accepted(time.Unix(1_000_000, 0)) }())
	require.Equal(t, "subscribed", s.proxy(1.2, initial, up))
	require.Equal(t, "nobody asked", s.proxy(5, update, up))
	require.Equal(t, "no cause seen", s.proxy(6, update, down))
	s.call(domain.Refresh, 10, 10.1, nil)
	require.Equal(t, "refresh", s.proxy(10.05, update, up))
	s.Cut(s.at(20), "idle 8s")
	require.Equal(t, "balancer cut: idle 8s", s.proxy(20.1, update, down))
	require.Equal(t, "after the cut", s.Accepted(s.at(20.2)))
	require.Equal(t, "nobody asked", s.proxy(25, remove, up))
	s.call(domain.Close, 30, 30.1, nil)
	s.call(domain.Reselect, 30.2, 30.4, nil)
	require.Equal(t, "client closes", s.proxy(30.3, remove, up))
	require.Equal(t, "heal", s.proxy(30.4, update, up))
	s.EndpointKilled(s.at(40))
	require.Equal(t, "endpoint killed", s.proxy(40.1, update, down))
	require.Equal(t, "endpoint killed", s.Event(ledger.Client, "c", s.at(40.1), update, down))
}

func newScriptInFirst() *script {
	s := newScript()
	s.Started(domain.Call{Conn: "c", Kind: domain.First, Start: s.zero})
	return s
}

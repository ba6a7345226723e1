package nsmgrproxy_test

import (
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// These steps take the far side, or this proxy, away.

func (s *schedule) refuse(refuse bool) {
	s.wire.Refuse(s.place, refuse)
	if refuse {
		s.note("outage, cut %d", s.wire.Cut(s.place))
	} else {
		s.note("outage over")
	}
}

// longOutage is a true loss of all that is at the far side: one DOWN when the grace
// ends, and what the far side says when it is back.
func (s *schedule) longOutage(*modelled) {
	s.outagePast(func() {})
}

func (s *schedule) outagePast(inside func()) {
	s.Helper()
	s.caughtUp()
	s.atFar(func(m *modelled) {
		if m.state() != downState {
			m.wants(downState + " " + m.state())
		}
	})
	s.refuse(true)
	began := time.Now()
	inside()
	time.Sleep(time.Until(began.Add(nsmgrproxy.DefaultMonitorGrace - time.Millisecond)))
	s.look()
	s.atFar(func(m *modelled) { require.NotContains(s, m.seen, downState, "inside the grace of %d", m.n) })
	time.Sleep(2 * time.Second)
	s.look()
	s.atFar(func(m *modelled) {
		require.Equal(s, networkservice.State_DOWN, m.told.GetState(), "the loss of %d, after the grace", m.n)
	})
	time.Sleep(time.Duration(s.rand.IntN(20)) * time.Second)
	s.refuse(false)
	s.judge(20 * time.Second)
}

// longOutageRefreshed is one into which a refresh falls: answered from memory inside
// the grace, and an error after it.
func (s *schedule) longOutageRefreshed(m *modelled) {
	if m.peer != s.far || m.state() != upState {
		return
	}
	s.outagePast(func() {
		time.Sleep(time.Duration(s.rand.IntN(15_000)) * time.Millisecond)
		s.refresh(m, 0)
		m.wants("UP DOWN UP")
	})
}

// forgottenForGood is a far side that does not take the leg back inside the grace.
func (s *schedule) forgottenForGood(*modelled) {
	s.caughtUp()
	s.atFar(func(m *modelled) { m.wants(m.after(downState)) })
	s.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "no such endpoint any more")})
	s.far.Forget()
	s.note("forgotten, cut %d", s.wire.Cut(s.place))
	time.Sleep(nsmgrproxy.DefaultMonitorGrace - time.Millisecond)
	s.look()
	s.atFar(func(m *modelled) { require.Empty(s, m.seen, "inside the grace of %d", m.n) })
	time.Sleep(15 * time.Second)
	s.far.Set(lbtest.Faults{})
	s.judge(time.Minute)
}

// deletedWhileCut is absence, and no word of the far side: it is asked.
func (s *schedule) deletedWhileCut(m *modelled) {
	if m.state() == refreshState {
		m.wants(upState)
	}
	s.refuse(true)
	m.peer.DeleteIf(m.is)
	if m.peer == s.other {
		m.wants(m.after(downState)) // that one is not cut
	}
	time.Sleep(time.Duration(s.rand.IntN(8)) * time.Second)
	s.refuse(false)
	s.judge(20 * time.Second)
}

// moved is a far side that answers at another address from now on.
func (s *schedule) moved(m *modelled) {
	s.caughtUp()
	old := s.place
	s.place = farAddr
	if old == farAddr {
		s.place = movedAddr
	}
	s.atFar(func(m *modelled) {
		if m.state() == refreshState {
			m.wants(upState)
		}
	})
	s.remote.set(endpointName, "tcp://"+s.place)
	s.wire.Refuse(s.place, false)
	hole := s.rand.IntN(2) == 0
	if hole {
		s.wire.Blackhole(old, true)
	}
	s.wire.Refuse(old, true)
	if !hole {
		s.wire.Cut(old)
	}
	s.note("moved from %s to %s", old, s.place)
	if s.rand.IntN(2) == 0 {
		if err := s.send(m, "refresh", again(m.conn)); err == nil {
			m.wants(upState)
		}
	}
	s.judge(70 * time.Second)
	s.wire.Blackhole(old, false)
	// A leg that the far side has said is DOWN is not looked for.
	s.begin("what was left behind")
	s.atFar(func(m *modelled) {
		if m.state() == downState {
			s.refresh(m, 0)
		}
	})
	s.judge(5 * time.Second)
}

// restart takes what is open over in the next process.
func (s *schedule) restart(m *modelled) {
	s.restartLate(m)
	s.begin("taken over")
	for _, m := range s.conns {
		if m.conn != nil && s.rand.IntN(3) > 0 {
			s.refresh(m, 0)
		}
	}
	s.judge(5 * time.Second)
}

// restartLate leaves it to the next steps what comes first at the next process.
func (s *schedule) restartLate(*modelled) {
	s.look()
	s.stop()
	s.start()
	s.cc.ResetConnectBackoff()
	time.Sleep(time.Second)
	for _, m := range s.conns {
		<-m.sub.done
		require.Equal(s, codes.Unavailable, status.Code(m.sub.err), "%v", m.sub.err)
		s.look()
		m.sub, m.told = s.subscribe(m.n), nil
		require.Empty(s, m.sub.initial)
	}
	s.judge(time.Second)
}

func (s *schedule) closeWhileCut(m *modelled) {
	s.adopted(m)
	s.refuse(true)
	s.end(m)
	s.only(m, "DELETE", "though the hop is down")
	time.Sleep(time.Duration(s.rand.IntN(15)) * time.Second)
	s.refuse(false)
	s.judge(15 * time.Second)
}

// reselectWhileCut leaves a far side that is out of reach for another one.
func (s *schedule) reselectWhileCut(m *modelled) {
	s.adopted(m)
	if m.peer != s.far {
		return
	}
	s.refuse(true)
	began := time.Now()
	s.reselect(m, otherEndpoint, true)
	require.Less(s, time.Since(began), 1100*time.Millisecond, "the old hop does not hold it")
	s.only(m, upState, "though the old hop is down")
	time.Sleep(time.Duration(s.rand.IntN(15)) * time.Second)
	s.refuse(false)
	s.judge(15 * time.Second)
}

func (s *schedule) refreshInABlackHole(m *modelled) {
	s.adopted(m)
	if m.peer != s.far || m.state() != upState {
		return
	}
	s.caughtUp()
	s.wire.Blackhole(s.place, true)
	s.refresh(m, 0)
	s.wire.Blackhole(s.place, false)
	s.judge(50 * time.Second)
}

package nsmgrproxy_test

import (
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
)

// These steps are what the far side says by itself.

func (s *schedule) down(m *modelled) {
	s.caughtUp()
	asked := len(s.far.Requests())
	m.wants(m.after(downState))
	m.peer.SayIf(m.is, setState(networkservice.State_DOWN))
	s.only(m, m.want[0], "at once")
	s.judge(time.Second)
	require.Len(s, s.far.Requests(), asked, "the far side's word is not argued with")
}

func (s *schedule) deleted(m *modelled) {
	s.caughtUp()
	m.wants(m.after(downState))
	m.peer.DeleteIf(m.is)
	s.only(m, m.want[0], "at once")
	s.judge(time.Duration(s.rand.IntN(10)) * time.Second)
}

func (s *schedule) has(m *modelled) bool {
	for _, conn := range m.peer.Conns() {
		if m.is(conn) {
			return true
		}
	}
	return false
}

func (s *schedule) up(m *modelled) {
	s.caughtUp()
	if s.has(m) {
		m.wants(m.after(upState))
	}
	m.peer.SayIf(m.is, setState(networkservice.State_UP))
	s.judge(0)
}

func (s *schedule) context(m *modelled) {
	s.caughtUp()
	if s.has(m) && m.told != nil && m.state() != downState {
		m.wants(m.state())
	}
	mtu := m.told.GetContext().GetMTU() + 1 + uint32(s.rand.IntN(100))
	m.peer.SayIf(m.is, func(conn *networkservice.Connection) { conn.Context.MTU = mtu })
	s.judge(0)
}

func (s *schedule) refreshRequested(m *modelled) {
	s.caughtUp()
	if s.has(m) {
		m.wants(m.after(refreshState))
	}
	m.peer.SayIf(m.is, setState(networkservice.State_REFRESH_REQUESTED))
	s.judge(0)
	if s.rand.IntN(2) == 0 {
		s.refresh(m, 0)
		s.judge(time.Second)
	}
}

func (s *schedule) reselectRequested(m *modelled) {
	s.caughtUp()
	if s.has(m) {
		m.wants(m.after(upState))
	}
	m.peer.SayIf(m.is, setState(networkservice.State_RESELECT_REQUESTED))
	s.judge(0)
}

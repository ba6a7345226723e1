package nsmgrproxy_test

import (
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// weather is what happens on the way to the far side while connections go on.
type weather struct {
	name string
	play func(s *schedule)
	// asks is set where the far side may have to be asked for a leg: a word that
	// was in it before is gone then. refuses is set where it may say no to that.
	asks, refuses bool
}

var storms = []weather{
	{name: "calm", play: func(*schedule) {}},
	{name: "cut", play: func(s *schedule) { s.note("cut %d", s.wire.Cut(s.place)) }},
	{name: "two cuts", play: func(s *schedule) {
		s.note("cut %d", s.wire.Cut(s.place))
		time.Sleep(s.shortly(3))
		s.note("cut %d", s.wire.Cut(s.place))
	}},
	{name: "streams end", play: func(s *schedule) { s.far.EndStreams() }},
	{name: "outage", play: func(s *schedule) {
		s.refuse(true)
		time.Sleep(s.shortly(10))
		s.refuse(false)
	}},
	{name: "black hole", play: func(s *schedule) {
		s.wire.Blackhole(s.place, true)
		time.Sleep(s.shortly(10))
		s.wire.Blackhole(s.place, false)
		s.note("black hole over")
		time.Sleep(25 * time.Second)
	}},
	{name: "forgotten, cut", asks: true, play: func(s *schedule) {
		s.far.Forget()
		s.note("forgotten, cut %d", s.wire.Cut(s.place))
	}},
	{name: "restart of the far side", asks: true, refuses: true, play: func(s *schedule) {
		s.far.Set(lbtest.Faults{RequestError: status.Error(codes.Unknown, "restarting")})
		s.refuse(true)
		s.far.Forget()
		time.Sleep(s.shortly(4))
		s.refuse(false)
		time.Sleep(s.shortly(4))
		s.far.Set(lbtest.Faults{})
		s.note("restarted")
	}},
	{name: "streams refused", asks: true, play: func(s *schedule) {
		s.streams(lbtest.Faults{MonitorError: status.Error(codes.PermissionDenied, "not yours")}, 20)
	}},
	{name: "streams end before any message", asks: true, play: func(s *schedule) {
		s.streams(lbtest.Faults{MonitorEnds: true}, 20)
	}},
	{name: "streams end after one message", play: func(s *schedule) {
		s.streams(lbtest.Faults{MonitorOnce: true}, 20)
	}},
	{name: "streams are silent", play: func(s *schedule) {
		s.streams(lbtest.Faults{MonitorSilent: true}, 15)
	}},
	{name: "streams are late", play: func(s *schedule) {
		s.streams(lbtest.Faults{MonitorDelay: 4 * time.Second}, 15)
	}},
}

// streams has all streams end, and those after them be so for a while.
func (s *schedule) streams(f lbtest.Faults, seconds int) {
	f.RequestDelay = s.shortly(2)
	s.far.Set(f)
	s.far.EndStreams()
	time.Sleep(s.shortly(seconds))
	s.far.Set(lbtest.Faults{})
	s.note("streams are well")
}

// shortly is a random time of so many seconds at most. It is used by several at the
// same time.
func (s *schedule) shortly(seconds int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rand.IntN(seconds*1000)) * time.Millisecond
}

// deeds are what is done to a connection in a storm. Each knows what may be seen.
var deeds = []func(s *schedule, m *modelled, w weather){
	func(s *schedule, m *modelled, w weather) { s.refreshIn(m, w) },
	func(s *schedule, m *modelled, w weather) { s.refreshIn(m, w) },
	func(s *schedule, m *modelled, _ weather) { s.end(m) },
	func(s *schedule, m *modelled, w weather) { s.downIn(m, w) },
	func(s *schedule, m *modelled, w weather) { s.contextIn(m, w) },
}

func (s *schedule) storm() {
	w := storms[s.rand.IntN(len(storms))]
	s.begin("storm: " + w.name)
	s.caughtUp()
	s.slowly()
	if w.asks {
		s.atFar(func(m *modelled) { m.wants(m.inPlace()...) })
	}
	fs := []func(){func() { time.Sleep(s.shortly(1)); w.play(s) }}
	for _, i := range s.rand.Perm(len(s.conns))[:1+s.rand.IntN(3)] {
		m, deed := s.conns[i], deeds[s.rand.IntN(len(deeds))]
		if m.conn != nil && m.told != nil {
			fs = append(fs, func() { time.Sleep(s.shortly(3)); deed(s, m, w) })
		}
	}
	s.together(fs...)
	s.judge(25 * time.Second)
}

// inPlace is what is seen of a leg that the far side is asked for in place.
func (m *modelled) inPlace() []string {
	if m.state() == refreshState {
		return []string{upState}
	}
	return []string{""}
}

// refreshIn has to succeed where the connection was UP, and the far side does not
// say no: there is always an answer inside the grace.
func (s *schedule) refreshIn(m *modelled, w weather) {
	before := m.state()
	// A caller that refreshes with an older context makes it the far side's again: so
	// does one whose answer was lost.
	twice := w.asks && before == refreshState || !proto.Equal(m.conn.GetContext(), m.told.GetContext())
	err := s.send(m, "refresh", again(m.conn))
	switch {
	case err == nil && twice:
		m.wants(upState, upState+" "+upState)
	case err == nil:
		m.wants(upState)
	case before == upState && !w.refuses:
		s.Errorf("a refresh of %d: %v", m.n, err)
	default:
		m.wants("", upState)
	}
}

// downIn is told once, unless the far side was asked for the connection after it.
func (s *schedule) downIn(m *modelled, w weather) {
	m.wants(m.after(downState))
	if w.asks {
		m.wants("", upState, downState, upState+" "+downState)
	}
	s.note("far side says DOWN of %d", m.n)
	m.peer.SayIf(m.is, setState(networkservice.State_DOWN))
}

// contextIn is told once, unless the far side forgot it.
func (s *schedule) contextIn(m *modelled, w weather) {
	mtu := m.told.GetContext().GetMTU() + 1
	if m.state() != downState && s.has(m) {
		m.wants(m.state())
	}
	if w.asks {
		m.wants("", upState, m.state(), m.state()+" "+upState, upState+" "+upState)
	}
	s.note("far side says another context of %d", m.n)
	m.peer.SayIf(m.is, func(conn *networkservice.Connection) { conn.Context.MTU = mtu })
}

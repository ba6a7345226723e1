package nsmgrproxy_test

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	upState      = "UP"
	downState    = "DOWN"
	refreshState = "REFRESH_REQUESTED"
)

// quiet are steps with one thing at a time: what they show has one order.
var quiet = map[string]func(s *schedule, m *modelled){
	"refresh":         func(s *schedule, m *modelled) { s.refresh(m, 0); s.judge(time.Second) },
	"refused refresh": (*schedule).refusedRefresh,
	"slow refresh":    (*schedule).abandonedRefresh,
	"open":            func(s *schedule, m *modelled) { s.slowly(); s.open(m); s.judge(10 * time.Second) },
	"close": func(s *schedule, m *modelled) {
		s.end(m)
		s.only(m, strings.Join(m.want, ""), "at once")
		s.judge(time.Second)
	},
	"reselect to the same":    func(s *schedule, m *modelled) { s.reselect(m, m.endpoint(), true); s.judge(time.Second) },
	"reselect to another":     (*schedule).reselectToAnother,
	"two reselects":           (*schedule).twoReselects,
	"DOWN":                    (*schedule).down,
	"DELETE":                  (*schedule).deleted,
	"UP":                      (*schedule).up,
	"another context":         (*schedule).context,
	"REFRESH_REQUESTED":       (*schedule).refreshRequested,
	"RESELECT_REQUESTED":      (*schedule).reselectRequested,
	"outage past the grace":   (*schedule).longOutage,
	"outage past, refreshed":  (*schedule).longOutageRefreshed,
	"forgotten past grace":    (*schedule).forgottenForGood,
	"deleted while cut":       (*schedule).deletedWhileCut,
	"moved":                   (*schedule).moved,
	"restart of ours":         (*schedule).restart,
	"restart of ours, late":   (*schedule).restartLate,
	"heal beside refresh":     (*schedule).healBesideRefresh,
	"refresh beside a DOWN":   (*schedule).refreshBesideDown,
	"refresh beside a Close":  (*schedule).refreshBesideClose,
	"close while cut":         (*schedule).closeWhileCut,
	"reselect while cut":      (*schedule).reselectWhileCut,
	"refresh in a black hole": (*schedule).refreshInABlackHole,
}

// names are the keys of quiet in an order that does not change.
var names = func() (names []string) {
	for name := range quiet {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}()

// step does one quiet thing, or several to different connections in a storm.
func (s *schedule) step() {
	m := s.conns[s.rand.IntN(len(s.conns))]
	if s.rand.IntN(3) == 0 {
		s.storm()
		return
	}
	name := names[s.rand.IntN(len(names))]
	if m.conn == nil {
		name = "open"
	} else if name == "open" {
		return
	}
	s.begin(name)
	s.note("%s of %d, %s", name, m.n, m.state())
	quiet[name](s, m)
}

// state is what was told last, empty if the proxy knows of no connection.
func (m *modelled) state() string {
	if m.told == nil {
		return ""
	}
	return m.told.GetState().String()
}

func (m *modelled) endpoint() string { return m.conn.GetNetworkServiceEndpointName() }

func (m *modelled) is(conn *networkservice.Connection) bool {
	return conn.GetPath().GetPathSegments()[0].GetId() == newRequest(m.n).GetConnection().GetPath().GetPathSegments()[0].GetId()
}

// after returns what follows a word of the far side of that state.
func (m *modelled) after(state string) string {
	if m.told == nil || m.state() == state {
		return ""
	}
	return state
}

func (m *modelled) wants(sequences ...string) { m.want = sequences }

// atFar calls f for each connection that the far side has and the proxy knows.
func (s *schedule) atFar(f func(m *modelled)) {
	for _, m := range s.conns {
		if m.conn != nil && m.peer == s.far && m.told != nil {
			f(m)
		}
	}
}

func (s *schedule) together(fs ...func()) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(f)
	}
	wg.Wait()
}

// caughtUp waits until the streams that lag have shown what they had to.
func (s *schedule) caughtUp() { time.Sleep(5 * time.Second) }

// slowly has the far side take its time for an answer.
func (s *schedule) slowly() {
	s.far.Set(lbtest.Faults{
		Expires:      s.capped(),
		RequestDelay: time.Duration(s.rand.IntN(5000)) * time.Millisecond,
		MonitorDelay: time.Duration(s.rand.IntN(4000)) * time.Millisecond,
		ReportFirst:  s.rand.IntN(2) == 0,
	})
}

// send sends a Request for the connection.
func (s *schedule) send(m *modelled, what string, r *networkservice.NetworkServiceRequest) error {
	conn, err := s.request(r)
	s.note("%s %d: %v", what, m.n, err)
	if err == nil {
		s.mu.Lock()
		m.conn, m.asked = conn, time.Now()
		s.mu.Unlock()
	}
	return err
}

// open requests the connection for the first time.
func (s *schedule) open(m *modelled) {
	s.Helper()
	m.wants(upState)
	m.peer = s.far
	r := newRequest(m.n)
	if s.rand.IntN(4) == 0 {
		m.peer = s.other
		r.Connection.NetworkServiceEndpointName = otherEndpoint
	}
	require.NoError(s, s.send(m, "open", r))
}

// refresh has to succeed, and is one UPDATE.
func (s *schedule) refresh(m *modelled, at time.Duration) {
	s.Helper()
	time.Sleep(at)
	m.wants(upState)
	before := ids(m.conn)
	require.NoError(s, s.send(m, "refresh", again(m.conn)))
	require.Equal(s, before, ids(m.conn), "ids stay")
}

// end closes the connection.
func (s *schedule) end(m *modelled) {
	s.Helper()
	if m.conn == nil {
		return
	}
	m.wants("DELETE")
	began := time.Now()
	signed := m.conn.Clone()
	signed.Path.PathSegments[2].Expires = timestamppb.New(began.Add(tokenTime))
	err := s.close(signed)
	s.note("close %d: %v", m.n, err)
	require.NoError(s, err)
	require.LessOrEqual(s, time.Since(began), time.Second, "a Close does not hold its caller")
	m.conn = nil
}

// reselect asks for that endpoint instead. Without its path beyond the proxy, the
// far side's leg is another one.
func (s *schedule) reselect(m *modelled, endpoint string, healthy bool) {
	s.Helper()
	m.wants(upState)
	require.NoError(s, s.send(m, "reselect to "+endpoint, s.reselection(m, endpoint, healthy)))
	if m.peer = s.far; endpoint == otherEndpoint {
		m.peer = s.other
	}
}

func (s *schedule) reselection(m *modelled, endpoint string, healthy bool) *networkservice.NetworkServiceRequest {
	r := reselect(m.conn, endpoint)
	if healthy && m.told != nil && s.rand.IntN(2) == 0 {
		r.Connection.Path.PathSegments = r.Connection.Path.PathSegments[:r.Connection.Path.Index+2]
	}
	return r
}

func (s *schedule) refusedRefresh(m *modelled) {
	if m.peer != s.far {
		return
	}
	s.far.Set(lbtest.Faults{RequestError: status.Error(codes.ResourceExhausted, "not now")})
	err := s.send(m, "refresh", again(m.conn))
	require.Equal(s, codes.ResourceExhausted, status.Code(err))
	s.judge(time.Second)
}

// abandonedRefresh is one that the far side answers when its caller has gone.
func (s *schedule) abandonedRefresh(m *modelled) {
	s.far.Set(lbtest.Faults{RequestDelay: callTime + time.Second + time.Duration(s.rand.IntN(15_000))*time.Millisecond, ReportFirst: s.rand.IntN(2) == 0})
	err := s.send(m, "refresh", again(m.conn))
	if m.peer == s.far {
		require.Equal(s, codes.DeadlineExceeded, status.Code(err))
	}
	m.wants(upState)
	s.judge(20 * time.Second)
}

// adopted makes sure that the proxy knows the connection.
func (s *schedule) adopted(m *modelled) {
	s.Helper()
	if m.told == nil {
		s.refresh(m, 0)
		s.judge(5 * time.Second)
	}
}

func (s *schedule) reselectToAnother(m *modelled) {
	s.adopted(m)
	endpoint := otherEndpoint
	if m.peer == s.other {
		endpoint = endpointName
	}
	old := m.peer
	s.reselect(m, endpoint, true)
	// What the old far side says of its own from now on is no word on the new leg.
	old.Say(func(*networkservice.Connection) {})
	s.only(m, upState, "neither DELETE nor DOWN")
	s.judge(time.Second)
}

// twoReselects are there and back, as heal does that does not find a better one.
func (s *schedule) twoReselects(m *modelled) {
	s.reselectToAnother(m)
	s.reselectToAnother(m)
}

func repeated(state string, n int) string { return strings.TrimSpace(strings.Repeat(" "+state, n)) }

// healBesideRefresh is several Requests for one connection at the same time.
func (s *schedule) healBesideRefresh(m *modelled) {
	s.adopted(m)
	s.slowly()
	requests := []*networkservice.NetworkServiceRequest{again(m.conn), s.reselection(m, m.endpoint(), false)}
	if s.rand.IntN(2) == 0 {
		requests = append(requests, again(m.conn))
	}
	var fs []func()
	for _, r := range requests {
		at := time.Duration(s.rand.IntN(2000)) * time.Millisecond
		fs = append(fs, func() {
			time.Sleep(at)
			require.NoError(s, s.send(m, "heal beside refresh", r))
		})
	}
	s.together(fs...)
	m.wants(repeated(upState, len(requests)))
	s.judge(5 * time.Second)
}

// refreshBesideDown has no order of its own; what is held in the end decides.
func (s *schedule) refreshBesideDown(m *modelled) {
	s.caughtUp()
	s.slowly()
	at, before := time.Duration(s.rand.IntN(2000))*time.Millisecond, m.state()
	s.together(
		func() { s.refresh(m, time.Second) },
		func() { time.Sleep(at); s.note("DOWN"); m.peer.SayIf(m.is, setState(networkservice.State_DOWN)) },
	)
	m.wants("UP", "UP DOWN", "DOWN UP", "DOWN UP DOWN", "UP DOWN UP DOWN")
	if before == downState || before == "" {
		m.wants("UP", "UP DOWN", "UP DOWN UP DOWN")
	}
	s.judge(5 * time.Second)
}

func (s *schedule) refreshBesideClose(m *modelled) {
	s.adopted(m)
	s.slowly()
	old := m.conn.Clone()
	at := time.Duration(s.rand.IntN(2000)) * time.Millisecond
	s.together(
		func() { s.refresh(m, time.Second) },
		func() { time.Sleep(at); s.note("close: %v", s.close(old)) },
	)
	s.refresh(m, 5*time.Second)
	m.wants(repeated(upState, 2), "DELETE "+repeated(upState, 2), "UP DELETE UP")
	s.judge(5 * time.Second)
}

package nsmgrproxy_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the schedule of this seed alone")
	seedsFlag = flag.Int("seeds", 15, "how many random schedules to run")
	stepsFlag = flag.Int("steps", 60, "how many steps a schedule has")
)

const (
	// modelledConns is how many connections a schedule has.
	modelledConns = 5
	// movedAddr is the far side's other address, beside farAddr.
	movedAddr = "10.9.2.44:5004"
	// otherEndpoint lives in a third domain.
	otherEndpoint = "endpoint2@cluster3"
)

// schedule is one random run, and the small model of the contract that it is held
// against.
//
// Each step does something to connections or to the way to the far side, and says
// for each connection what its subscriber has to see for it: mostly one sequence of
// states, a few where what happens at the same time has no order of its own. When
// the step has settled, what was seen is held against that, and what all that was
// seen folds to against what the far side holds.
//
// A seed is good for the steps as they are now. What one has found is kept as a case
// with a name.
type schedule struct {
	*world
	rand  *rand.Rand
	conns []*modelled
	// other is a far side in a third domain, which nothing ever happens to.
	other *lbtest.Peer
	// place is where the far side is reached.
	place string
	// goroutines are those that there are in a world without connections.
	goroutines map[string]int

	// mu guards the log of what was done and seen.
	mu  sync.Mutex
	log []string
}

// modelled is one connection and the small model of its contract.
type modelled struct {
	n    int
	conn *networkservice.Connection // as last answered, nil while closed
	peer *lbtest.Peer               // who has it
	sub  *subscriber
	// asked is when it was last requested.
	asked time.Time
	// told is what the events fold to, nil while the proxy knows of no connection:
	// one that was closed, or that a new process has not been asked for yet.
	told *networkservice.Connection
	// want are the sequences of states that the current step may show to the
	// subscriber, and seen is what it did.
	want, seen []string
}

func TestProperty_WhatIsSeenIsWhatTheFarSideHolds(t *testing.T) {
	var seeds []uint64
	for i := range *seedsFlag {
		seeds = append(seeds, uint64(i+1))
	}
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inBubble(t, func(w *world) {
				s := &schedule{world: w, rand: rand.New(rand.NewPCG(seed, 0)), other: lbtest.NewPeer("other"), place: farAddr}
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("schedule of -seed %d:\n%s", seed, strings.Join(s.log, "\n"))
					}
				})
				defer w.serve(otherAddr, s.other.Register)()
				defer w.serve(movedAddr, w.far.Register)()
				w.remote.set(otherEndpoint, "tcp://"+otherAddr)
				s.run()
			})
		})
	}
}

func (s *schedule) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("%s %s", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...)))
}

func (s *schedule) run() {
	for n := range modelledConns {
		s.conns = append(s.conns, &modelled{n: n, want: []string{""}, sub: s.subscribe(n)})
	}
	s.begin("the hops of the registries are opened")
	s.open(s.conns[0])
	s.judge(time.Second)
	s.end(s.conns[0])
	s.judge(2 * time.Minute)
	s.goroutines = goroutines()
	for range *stepsFlag {
		s.renew()
		s.step()
	}
	s.settle()
}

// begin starts a step, for which nothing is to be seen unless it says otherwise.
func (s *schedule) begin(what string) {
	s.note("-- %s", what)
	for _, m := range s.conns {
		m.want, m.seen = []string{""}, nil
	}
	benign := lbtest.Faults{
		MonitorDelay: time.Duration(s.rand.IntN(4000)) * time.Millisecond,
		ReportFirst:  s.rand.IntN(2) == 0,
	}
	if s.rand.IntN(2) == 0 {
		benign = lbtest.Faults{Expires: s.capped()}
	}
	s.far.Set(benign)
}

// capped is an end of tokens as a certificate sets it: they stand still, and go back.
func (s *schedule) capped() time.Time {
	if s.rand.IntN(2) == 0 {
		return time.Time{}
	}
	return time.Now().Truncate(5 * time.Minute).Add(tokenTime + time.Duration(s.rand.IntN(2))*5*time.Minute)
}

// renew refreshes what would run out, or is DOWN where nobody follows it.
func (s *schedule) renew() {
	for _, m := range s.conns {
		if m.conn != nil && time.Since(m.asked) > tokenTime/3 {
			s.begin("tokens must not run out")
			s.refresh(m, 0)
			s.judge(time.Second)
		}
	}
}

// judge lets the step settle and holds it against the model.
func (s *schedule) judge(settled time.Duration) {
	s.Helper()
	time.Sleep(settled)
	s.look()
	for _, m := range s.conns {
		require.Contains(s, m.want, strings.Join(m.seen, " "), "seen of %d", m.n)
		m.want, m.seen = []string{""}, nil
		s.compare(m)
	}
}

// look takes in what the subscribers have seen.
func (s *schedule) look() {
	s.Helper()
	for _, m := range s.conns {
		for _, event := range m.sub.next() {
			require.Len(s, event.GetConnections(), 1)
			for id, conn := range event.GetConnections() {
				s.see(m, event.GetType(), id, conn)
			}
		}
	}
}

func (s *schedule) see(m *modelled, kind networkservice.ConnectionEventType, id string, conn *networkservice.Connection) {
	s.Helper()
	segment := conn.GetCurrentPathSegment()
	require.Equal(s, [...]string{id, id, "proxy"}, [...]string{conn.GetId(), segment.GetId(), segment.GetName()}, "the shape of an event")
	state := stateIn(kind, conn)
	if m.told = conn; kind == networkservice.ConnectionEventType_DELETE {
		m.told = nil
	}
	s.note("seen of %d: %s", m.n, state)
	m.seen = append(m.seen, state)
}

// only requires that this is what the step has shown so far.
func (s *schedule) only(m *modelled, states, why string) {
	s.Helper()
	s.look()
	require.Equal(s, states, strings.Join(m.seen, " "), "of %d, %s", m.n, why)
}

// compare holds what was told of a connection against what the far sides hold, and
// against what a subscriber learns that joins now.
func (s *schedule) compare(m *modelled) {
	s.Helper()
	var held []*networkservice.Connection
	for _, peer := range []*lbtest.Peer{s.far, s.other} {
		for _, conn := range peer.Conns() {
			if conn.GetPath().GetPathSegments()[2].GetId() == s.forwarder(m) {
				require.Same(s, m.peer, peer, "the one that has %d", m.n)
				held = append(held, conn)
			}
		}
	}
	if m.conn == nil {
		require.Nil(s, m.told, "%d is closed", m.n)
		require.Empty(s, held, "%d is closed", m.n)
		return
	}
	require.LessOrEqual(s, len(held), 1, "legs of %d at the far side", m.n)
	if m.told == nil {
		return
	}
	known := s.joining(m)
	require.Equal(s, m.told.GetState(), known.GetState(), "the state that a late subscriber of %d learns", m.n)
	require.Equal(s, ids(m.told), ids(known))
	require.True(s, proto.Equal(m.told.GetContext(), known.GetContext()), "the context that a late subscriber of %d learns", m.n)
	if len(held) == 0 || held[0].GetState() == networkservice.State_DOWN {
		require.Equal(s, networkservice.State_DOWN, m.told.GetState(), "the far side has lost %d", m.n)
		return
	}
	state := held[0].GetState()
	if state == networkservice.State_RESELECT_REQUESTED {
		state = networkservice.State_UP
	}
	require.Equal(s, state, m.told.GetState(), "told of %d, and held", m.n)
	require.Equal(s, ids(held[0]), ids(m.told), "told of %d, and held", m.n)
	require.True(s, proto.Equal(held[0].GetContext(), m.told.GetContext()), "the context of %d: held %v, told %v", m.n, held[0].GetContext(), m.told.GetContext())
}

// joining is what a late subscriber learns.
func (s *schedule) joining(m *modelled) *networkservice.Connection {
	s.Helper()
	late := s.subscribe(m.n)
	defer late.end()
	require.Len(s, late.initial, 1, "what a late subscriber of %d learns", m.n)
	return late.initial[m.told.GetId()]
}

func (s *schedule) forwarder(m *modelled) string { return fmt.Sprintf("forwarder-%d", m.n) }

// settle ends everything and requires that nothing is left.
func (s *schedule) settle() {
	s.begin("the end")
	open := 0
	for _, m := range s.conns {
		if m.conn != nil {
			open++
			s.refresh(m, 0)
		}
	}
	s.judge(10 * time.Second)
	require.Len(s, s.far.Conns(), open-len(s.other.Conns()), "the far sides hold what was not closed, and no more")
	streams, _ := s.far.Streams()
	require.Len(s, s.far.Conns(), streams, "one stream for each")
	synctest.Wait()
	require.Equal(s, len(s.conns), nsmgrproxy.HeldBy(s.chain).Subscribers)
	for _, m := range s.conns {
		s.end(m)
	}
	s.judge(2 * time.Minute)
	require.Equal(s, s.goroutines, goroutines(), "goroutines by who started them")
	for _, m := range s.conns {
		m.sub.end()
	}
	synctest.Wait()
	require.Equal(s, nsmgrproxy.Held{Hops: 2}, nsmgrproxy.HeldBy(s.chain), "the hops of the registries, and no more")
	require.Empty(s, s.far.Conns())
	require.Empty(s, s.other.Conns())
	for _, addr := range []string{farAddr, movedAddr, otherAddr} {
		require.Zero(s, s.wire.Open(addr), "a hop that nobody uses")
	}
}

// goroutines counts who started the goroutines that there are.
func goroutines() map[string]int {
	stacks := make([]byte, 1<<20)
	counts := make(map[string]int)
	for line := range strings.Lines(string(stacks[:runtime.Stack(stacks, true)])) {
		if by, ok := strings.CutPrefix(line, "created by "); ok {
			by, _, _ = strings.Cut(by, " in goroutine ")
			counts[by]++
		}
	}
	return counts
}

package nsmgrproxy_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the schedule of this seed alone")
	seedsFlag = flag.Int("seeds", 20, "how many random schedules to run")
)

// failed holds seeds whose schedules once broke the contract.
var failedSeeds = []uint64{}

// schedule is one random run: what was done to the connections, and what their
// subscribers may conclude from it.
type schedule struct {
	*world
	rand  *rand.Rand
	conns []*modelled

	// mu guards the log of what was done and seen.
	mu  sync.Mutex
	log []string
}

// modelled is one connection and the small model of its contract.
type modelled struct {
	n    int
	conn *networkservice.Connection // as last answered, nil while closed
	sub  *subscriber
	// asked is when it was last requested.
	asked time.Time

	mu sync.Mutex
	// told is the state by the subscriber's last event.
	told networkservice.State
	// excused is set while a DOWN would be true: the far side has said so, or
	// was out of reach for longer than the grace.
	excused bool
	// ups counts what may cause an UPDATE, UP, beyond those seen.
	ups int
}

func TestProperty_WhatIsSeenIsWhatTheFarSideHolds(t *testing.T) {
	seeds := failedSeeds
	for i := range *seedsFlag {
		seeds = append(seeds, uint64(i+1))
	}
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inBubble(t, func(w *world) {
				s := &schedule{world: w, rand: rand.New(rand.NewPCG(seed, 0))}
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("schedule of -seed %d:", seed)
						for _, line := range s.log {
							t.Log(line)
						}
					}
				})
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
	for n := range 4 {
		s.conns = append(s.conns, &modelled{n: n, sub: s.subscribe(n)})
	}
	for range 60 {
		for _, m := range s.conns {
			if m.conn != nil && time.Since(m.asked) > tokenTime/3 {
				s.ask(m, false) // tokens must not run out
			}
		}
		s.step()
		time.Sleep(time.Duration(s.rand.IntN(20_000)) * time.Millisecond)
		s.check()
	}
	s.settle()
}

// step does one thing to one connection or to the way to the far side.
func (s *schedule) step() {
	m := s.conns[s.rand.IntN(len(s.conns))]
	switch op := s.rand.IntN(20); {
	case op < 5:
		s.ask(m, false)
	case op < 8:
		s.together(func() { s.ask(m, false) }, func() { s.cut() })
	case op < 9:
		s.ask(m, true)
	case op < 10:
		s.end(m)
	case op < 12:
		s.cut()
	case op < 13:
		s.note("streams end")
		s.far.EndStreams()
	case op < 14:
		s.outage(time.Duration(1+s.rand.IntN(14)) * time.Second)
	case op < 15:
		s.note("black hole")
		s.wire.Blackhole(farAddr, true)
		time.Sleep(time.Second)
		s.wire.Blackhole(farAddr, false)
		time.Sleep(28 * time.Second)
	case op < 16:
		s.longOutage()
	case op < 17:
		s.say("DOWN", setState(networkservice.State_DOWN))
	case op < 18:
		s.say("another context", func(conn *networkservice.Connection) { conn.Context.MTU = uint32(s.rand.IntN(9000)) })
	case op < 19:
		s.note("far side forgets, and is cut")
		s.far.Forget()
		s.cut()
		time.Sleep(10 * time.Second)
	default:
		s.restart()
	}
}

func (s *schedule) together(fs ...func()) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(f)
	}
	wg.Wait()
}

func (s *schedule) cut() {
	time.Sleep(time.Duration(s.rand.IntN(300)) * time.Millisecond)
	s.note("cut %d", s.wire.Cut(farAddr))
}

func (s *schedule) outage(d time.Duration) {
	s.note("outage of %s", d)
	s.wire.Refuse(farAddr, true)
	s.wire.Cut(farAddr)
	m := s.conns[s.rand.IntN(len(s.conns))]
	s.together(func() { time.Sleep(d); s.wire.Refuse(farAddr, false) }, func() {
		if m.conn != nil {
			s.ask(m, false)
		}
	})
	time.Sleep(8 * time.Second) // a backoff of 5 s and its jitter
}

func (s *schedule) longOutage() {
	s.note("outage past the grace")
	s.wire.Refuse(farAddr, true)
	s.wire.Cut(farAddr)
	for _, m := range s.conns {
		m.excuse()
	}
	time.Sleep(45 * time.Second)
	s.wire.Refuse(farAddr, false)
	time.Sleep(10 * time.Second)
}

func (m *modelled) excuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.excused = m.conn != nil
	m.ups++
}

// say has the far side say something of all its connections.
func (s *schedule) say(what string, f func(*networkservice.Connection)) {
	s.note("far side says %s", what)
	for _, m := range s.conns {
		m.excuse()
	}
	s.far.Say(f)
}

// ask requests, refreshes or reselects.
func (s *schedule) ask(m *modelled, reselect bool) {
	r := newRequest(m.n)
	if m.conn != nil {
		r = again(m.conn)
		if reselect {
			r.Connection.State = networkservice.State_RESELECT_REQUESTED
			r.MechanismPreferences = newRequest(m.n).MechanismPreferences
		}
	}
	conn, err := s.request(r)
	s.note("request %d (known %v, reselect %v): %v", m.n, m.conn != nil, reselect, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.conn, m.asked = conn, time.Now()
		m.ups++
	}
}

func (s *schedule) end(m *modelled) {
	if m.conn == nil {
		return
	}
	err := s.close(m.conn)
	s.note("close %d: %v", m.n, err)
	require.NoError(s, err)
	m.conn = nil
	s.check()
}

func (s *schedule) restart() {
	s.note("restart")
	s.check()
	s.stop()
	s.start()
	s.cc.ResetConnectBackoff()
	time.Sleep(time.Second)
	for _, m := range s.conns {
		<-m.sub.done
		m.sub = s.subscribe(m.n)
		m.told = networkservice.State_UP
		m.excused = false
		if m.conn != nil {
			s.ask(m, false)
		}
	}
}

// check holds what the subscribers have seen against the model.
func (s *schedule) check() {
	s.Helper()
	for _, m := range s.conns {
		for _, event := range m.sub.next() {
			for _, conn := range event.GetConnections() {
				s.see(m, event.GetType(), conn)
			}
		}
	}
}

func (s *schedule) see(m *modelled, kind networkservice.ConnectionEventType, conn *networkservice.Connection) {
	s.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	s.note("seen of %d: %s %s", m.n, kind, conn.GetState())
	switch {
	case kind == networkservice.ConnectionEventType_DELETE:
		require.Nil(s, m.conn, "a DELETE for a connection that nobody closed")
	case conn.GetState() == networkservice.State_DOWN:
		require.True(s, m.excused, "a false DOWN for %d", m.n)
		require.NotEqual(s, networkservice.State_DOWN, m.told, "a second DOWN for one loss of %d", m.n)
	default:
		require.Positive(s, m.ups, "an UPDATE for %d that nothing caused", m.n)
		m.ups--
	}
	m.told = conn.GetState()
}

// settle lets everything heal, compares the two ends, and takes all down.
func (s *schedule) settle() {
	time.Sleep(30 * time.Second)
	s.check()
	open := 0
	for _, m := range s.conns {
		if m.conn == nil {
			continue
		}
		open++
		s.ask(m, false)
		s.check()
		require.Equal(s, networkservice.State_UP, m.told)
	}
	require.Len(s, s.far.Conns(), open, "the far side holds what was not closed, and no more")
	for _, m := range s.conns {
		s.end(m)
		m.sub.end()
	}
	time.Sleep(2 * time.Minute)
	require.Empty(s, s.far.Conns())
	streams, _ := s.far.Streams()
	require.Zero(s, streams)
	require.Zero(s, s.wire.Open(farAddr), "the hop is released")
}

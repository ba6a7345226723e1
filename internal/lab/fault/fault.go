// Package fault draws what goes wrong in a soak, and when. The same seed draws
// the same faults in the same order, whatever the machine does meanwhile.
package fault

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Kind is a way to go wrong.
type Kind string

// Where nothing else is said, it goes wrong between the two proxies.
const (
	IdleShrinks    Kind = "idle limit shrinks"
	IdleGrows      Kind = "idle limit grows"
	Cut            Kind = "cut"
	Reset          Kind = "reset"
	Refuse         Kind = "cut, then refused"
	Blackhole      Kind = "black hole"
	BlackholeUp    Kind = "black hole upwards"
	BlackholeDown  Kind = "black hole downwards"
	Lag            Kind = "lag"
	Move           Kind = "balancer moves" // at once: the old address is gone
	Drain          Kind = "balancer moves, old address drains"
	KillOutbound   Kind = "outbound proxy killed"
	KillInbound    Kind = "inbound proxy killed"
	KillBoth       Kind = "both proxies killed"
	InnerCut       Kind = "cut in domain 2" // between inbound proxy and nsmgr
	InnerReset     Kind = "reset in domain 2"
	InnerRefuse    Kind = "cut, then refused in domain 2"
	InnerBlackhole Kind = "black hole in domain 2"
	Death          Kind = "endpoint dies"
	DeathUnheard   Kind = "endpoint dies in a black hole"
)

// Kinds returns all of them.
func Kinds() []Kind {
	return []Kind{
		IdleShrinks, IdleGrows, Cut, Reset, Refuse, Blackhole, BlackholeUp, BlackholeDown, Lag, Move, Drain,
		KillOutbound, KillInbound, KillBoth, InnerCut, InnerReset, InnerRefuse, InnerBlackhole, Death, DeathUnheard,
	}
}

const (
	// shortest is long enough for every part to notice what it can notice.
	shortest = time.Second
	// innerLongest keeps an outage inside a domain, together with the time to
	// notice its end, below the shorter grace that holds there.
	innerLongest = 5 * time.Second
	// restartLongest is what a pod takes to come back on a good day.
	restartLongest = 6 * time.Second
	// shortRest and longRest bound the rest before a fault. A stream has to have
	// lasted for a second before a proxy logs its loss where it can be read.
	shortRest = 1200 * time.Millisecond
	longRest  = 6 * time.Second
)

// Fault is one thing that goes wrong.
type Fault struct {
	Kind  Kind
	Lasts time.Duration // 0 for what happens at once
	Rest  time.Duration // before it
}

// String describes the fault without its rest.
func (f Fault) String() string {
	if f.Lasts == 0 {
		return string(f.Kind)
	}
	return fmt.Sprintf("%s, %s", f.Kind, f.Lasts)
}

// Schedule draws faults. Every kind comes once before any comes again, so that
// a run of some length has seen them all.
type Schedule struct {
	random  *rand.Rand
	longest time.Duration
	left    []Kind
}

// NewSchedule starts with a seed. No fault lasts longer than longest, which is
// at least a second.
func NewSchedule(seed uint64, longest time.Duration) *Schedule {
	return &Schedule{random: rand.New(rand.NewPCG(seed, seed)), longest: max(longest, shortest)}
}

// Next draws a fault.
func (s *Schedule) Next() Fault {
	if len(s.left) == 0 {
		s.left = Kinds()
		s.random.Shuffle(len(s.left), func(i, j int) { s.left[i], s.left[j] = s.left[j], s.left[i] })
	}
	f := Fault{Kind: s.left[0], Rest: s.between(shortRest, max(shortRest, min(longRest, s.longest/2)))}
	s.left = s.left[1:]
	switch f.Kind {
	case Cut, Reset, Move, InnerCut, InnerReset:
	case InnerRefuse, InnerBlackhole:
		f.Lasts = s.between(shortest, min(innerLongest, s.longest))
	case KillOutbound, KillInbound, KillBoth:
		f.Lasts = s.between(0, min(restartLongest, s.longest))
	default:
		f.Lasts = s.between(shortest, s.longest)
	}
	return f
}

// between draws a time, in steps that are good to read.
func (s *Schedule) between(from, to time.Duration) time.Duration {
	return (from + time.Duration(s.random.Int64N(int64(to-from)+1))).Round(10 * time.Millisecond)
}

package hop

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"
)

// Peer is what the far side of a hop is.
type Peer int32

// The kinds of peers. Only an answer to a Request tells.
const (
	Unknown Peer = iota
	Stock
	Ours
)

func (p Peer) String() string {
	switch p {
	case Stock:
		return "stock"
	case Ours:
		return "ours"
	}
	return "unknown"
}

// Failure is a class of failures.
type Failure int

// The classes.
const (
	// Unreachable: there was no connection for a call.
	Unreachable Failure = iota
	// Lost: the connection ended under a call that had gone out.
	Lost
	// Silent: a peer did not show that it is alive, and its connection was replaced.
	Silent
	failures
)

func (f Failure) String() string { return [failures]string{"unreachable", "lost", "silent"}[f] }

// Status is what is known of one hop.
type Status struct {
	Target    string
	Peer      Peer
	Users     int  // handles
	Connected bool // at this moment
	Dials     int  // connections that came up
	// LastPayload is when a message last went either way over the current connection,
	// and LastAnswer when the far side last answered a call. Zero for never.
	LastPayload, LastAnswer time.Time
	// Failures are counted by class, since the hop was opened.
	Failures map[Failure]int
}

// facts are those that a hop gathers.
type facts struct {
	peer       atomic.Int32
	lastAnswer atomic.Int64 // in Unix nanoseconds
	failures   [failures]atomic.Int64
}

// Status returns what is known of each hop, sorted by target.
func (p *Pool) Status() []Status {
	p.mu.Lock()
	hops := make([]*hop, 0, len(p.hops))
	for _, h := range p.hops {
		hops = append(hops, h)
	}
	p.mu.Unlock()
	all := make([]Status, 0, len(hops))
	for _, h := range hops {
		c := h.conn.Load()
		s := Status{
			Target: h.target, Peer: Peer(h.facts.peer.Load()), Users: int(h.users.Load()), Dials: int(h.dials.Load()),
			Connected:   c.cc.GetState() == connectivity.Ready,
			LastPayload: at(c.lastPayload.Load()), LastAnswer: at(h.facts.lastAnswer.Load()),
			Failures: make(map[Failure]int, failures),
		}
		for f := range failures {
			if n := h.facts.failures[f].Load(); n > 0 {
				s.Failures[f] = int(n)
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Target, b.Target) })
	return all
}

func at(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

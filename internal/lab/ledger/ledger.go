// Package ledger keeps what happened in a run of the lab and judges it against
// the event contract.
//
// Entries may come from any goroutine. They are judged by the times they carry,
// so that an event that was read a little late is still held against the
// Request it belongs to. Nothing is forgotten before the verdict: a run is
// short.
package ledger

import (
	"sync"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
)

// near is how far apart cause and effect may be to be told as one: the events
// of a cut pass four processes' worth of streams on a machine that is busy.
const near = 2 * time.Second

// Who saw an event.
type Who string

const (
	Client   Who = "client"   // Client is the stream of the client's nsmgr.
	Proxy    Who = "proxy1"   // Proxy is the stream of the outbound proxy.
	Balancer Who = "balancer" // Balancer is the relay between the proxies.
	Lab      Who = "lab"      // Lab is whoever runs the experiment.
)

// Counts are the numbers of a run so far.
type Counts struct {
	Refreshes       int `json:"refreshes"`       // refreshes that succeeded
	RefreshFailures int `json:"refreshFailures"` // refreshes that did not
	Dials           int `json:"upstreamDials"`   // connections the balancer accepted
	Cuts            int `json:"cuts"`            // connections the balancer cut
	Resumes         int `json:"resumes"`         // monitor streams resumed, by the outbound proxy's log
	DownFalse       int `json:"downFalse"`       // DOWN at the outbound proxy while the endpoint lived
	DownTrue        int `json:"downTrue"`        // DOWN at the outbound proxy while it was dead
	ClientDownFalse int `json:"clientDownFalse"` // the same at the client's nsmgr
	ClientDownTrue  int `json:"clientDownTrue"`
	Heals           int `json:"heals"` // reselects that succeeded

	// What only a soak counts.
	ClientDownExcused int `json:"clientDownExcused,omitempty"` // DOWN at the client's nsmgr that is the neighbours' own
	RefreshExcused    int `json:"refreshExcused,omitempty"`    // failed refreshes that are
	PathChanges       int `json:"pathChanges,omitempty"`       // refreshes that came back with other ids
	Adopted           int `json:"adopted,omitempty"`           // connections with the same ids after a restart of the outbound proxy
	NotAdopted        int `json:"notAdopted,omitempty"`        // and those with others
	LeftUnheard       int `json:"leftUnheard,omitempty"`       // connections closed before their endpoint's death could be heard
}

// Ledger is the book of one run.
type Ledger struct {
	mu       sync.Mutex
	counts   Counts
	conns    map[string]*connection
	accepts  []time.Time
	cuts     []cut
	resumes  []time.Time
	deaths   []death
	troubles []trouble
	lost     map[string]lostStream // by segment
	faults   map[string]int
	breaches map[string]int
}

type cut struct {
	at     time.Time
	reason string
}

// death is a time without endpoint. It goes on while back is zero.
type death struct {
	at, back time.Time
	unheard  bool // nobody could tell the outbound proxy at once
}

type connection struct {
	calls  []domain.Call // in order of their starts; End is zero while under way
	events []event       // of the outbound proxy, in order
	alive  map[Who]bool  // by the last event
	down   map[Who]bool  // the last event said DOWN
	downs  map[Who][]time.Time
	path   []string // ids of the last answer
	// unadopted is set when the outbound proxy is killed, until the next answer.
	unadopted bool
}

type event struct {
	at    time.Time
	kind  networkservice.ConnectionEventType
	state networkservice.State
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		conns:    make(map[string]*connection),
		lost:     make(map[string]lostStream),
		faults:   make(map[string]int),
		breaches: make(map[string]int),
	}
}

// Counts returns the numbers as of now.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.counts
	for _, d := range l.deaths {
		for _, c := range l.conns {
			if c.leftUnheard(d) {
				counts.LeftUnheard++
			}
		}
	}
	return counts
}

// Alive says whether the last thing that who said of a connection is neither
// DOWN nor DELETE.
func (l *Ledger) Alive(who Who, id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn(id).alive[who]
}

func (l *Ledger) conn(id string) *connection {
	c, ok := l.conns[id]
	if !ok {
		c = &connection{alive: make(map[Who]bool), down: make(map[Who]bool), downs: make(map[Who][]time.Time)}
		l.conns[id] = c
	}
	return c
}

// dead says whether there was no endpoint at the given time.
func (l *Ledger) dead(at time.Time) bool {
	for _, d := range l.deaths {
		if !at.Before(d.at) && (d.back.IsZero() || at.Before(d.back)) {
			return true
		}
	}
	return false
}

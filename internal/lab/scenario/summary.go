package scenario

import (
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
)

// Summary is the outcome of a run.
type Summary struct {
	Name        string        `json:"name"`
	Duration    time.Duration `json:"durationNanoseconds"`
	Connections int           `json:"connections"`
	Segments    int           `json:"segments"`
	ledger.Counts
	// SlowestResume is the longest time from a cut to the next resume, and
	// Unresumed the number of cuts that none followed.
	SlowestResume time.Duration `json:"slowestResumeNanoseconds"`
	Unresumed     int           `json:"cutsWithoutResume"`
	Cost
	DeathToDown
	Soak *Soak `json:"soak,omitempty"`
	ledger.Verdict
	// Logs are the ends of both proxies' logs if the contract did not hold.
	Logs string `json:"-"`
}

// DeathToDown is the time from the endpoint's death to the DOWN, the median over
// all connections in milliseconds. A nil was not measured.
type DeathToDown struct {
	Proxy  *float64 `json:"deathToDownMilliseconds,omitempty"`
	Client *float64 `json:"deathToDownAtClientMilliseconds,omitempty"`
}

func (l *lab) summary() *Summary {
	l.sayMu.Lock()
	l.over = true
	l.sayMu.Unlock()
	s := &Summary{
		Name:        l.options.Name,
		Duration:    time.Since(l.start).Round(time.Second / 10),
		Connections: l.options.Connections,
		Segments:    l.segments,
		Counts:      l.book.Counts(),
		Cost:        l.cost,
		DeathToDown: DeathToDown{Proxy: l.deathToDown(ledger.Proxy), Client: l.deathToDown(ledger.Client)},
	}
	s.SlowestResume, s.Unresumed = l.book.SlowestResume()
	if l.options.Soak > 0 {
		s.Soak, s.Verdict = l.soaked(), l.book.SoakVerdict()
	} else {
		s.Verdict = l.book.Verdict(l.expect())
	}
	if !s.Held {
		s.Logs = l.proxyTails()
	}
	return s
}

// expect is what the run has to have seen.
func (l *lab) expect() ledger.Expect {
	expect := ledger.Expect{Deaths: 1}
	if l.options.OnlyIdle {
		expect.Deaths = 0
	}
	if l.options.Cuts > 0 {
		return expect // its length depends on the machine
	}
	// A run that lasts for several refresh intervals has to have refreshed.
	every := l.options.RefreshInterval()
	expect.Refreshes = l.options.Connections * max(0, int((l.options.For-every/2)/every))
	return expect
}

func (l *lab) deathToDown(who ledger.Who) *float64 {
	took, ok := l.book.DeathToDown(who)
	if !ok {
		return nil
	}
	ms := milliseconds(took)
	return &ms
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

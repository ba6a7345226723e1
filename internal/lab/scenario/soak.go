package scenario

import (
	"fmt"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/fault"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
)

const (
	// longestFault keeps every outage well below the grace of 30 s, so that each
	// DOWN without a death of the endpoint is false.
	longestFault = 20 * time.Second
	// faultShare is the part of a short soak that one fault may take.
	faultShare = 10
	// backTimeout bounds the time from the end of a fault until all is well. A
	// black hole has to be noticed first, and a heal has tries of 15 s.
	backTimeout = 45 * time.Second
	// wellFor is how long all has to be well: a proxy's word of a loss comes a
	// little after the loss.
	wellFor = 300 * time.Millisecond
)

// Soak is what a soak adds to a summary.
type Soak struct {
	Seed uint64 `json:"seed"`
	// ConnectionHours is for how long how many connections were at risk.
	ConnectionHours float64 `json:"connectionHours"`
	// FalsePerThousand is the number of false DOWNs at the outbound proxy in a
	// thousand of these hours.
	FalsePerThousand float64        `json:"falseDownPerThousandConnectionHours"`
	Faults           map[string]int `json:"faults"`
	// Slowest is the longest time from the end of a fault until all was well.
	Slowest time.Duration `json:"slowestRecoveryNanoseconds"`

	began time.Time
}

// soak lets things go wrong, one after the other, and all be well in between.
// So no two outages add up to more than the grace.
func (l *lab) soak() error {
	l.relay.SetIdle(l.options.Idle)
	l.soaking = &Soak{Seed: l.options.Seed, began: time.Now()}
	end := time.Now().Add(l.options.Soak)
	schedule := fault.NewSchedule(l.options.Seed, min(longestFault, l.options.Soak/faultShare))
	for {
		f := schedule.Next()
		if time.Now().Add(f.Rest + f.Lasts).After(end) {
			break
		}
		if err := l.sleep(f.Rest); err != nil {
			return err
		}
		l.book.Fault(string(f.Kind))
		l.say(ledger.Lab, "FAULT", "", "", f.String())
		if err := l.apply(f); err != nil {
			return fmt.Errorf("lab: %s: %w", f, err)
		}
		if err := l.recover(f); err != nil {
			return err
		}
	}
	l.soaking.ConnectionHours = time.Since(l.soaking.began).Hours() * float64(l.options.Connections)
	return nil
}

// recover waits until all is well after a fault. What does not get well is a
// breach; connections that hang are cut then, so that the soak can go on.
func (l *lab) recover(f fault.Fault) error {
	began := time.Now()
	err := l.awaitWell(l.patience(backTimeout))
	took := time.Since(began)
	l.soaking.Slowest = max(l.soaking.Slowest, took)
	if err == nil {
		l.book.TroubleEnds(time.Now())
		l.say(ledger.Lab, "ALL WELL", "", "", "after "+took.Round(100*time.Millisecond).String())
		return nil
	}
	if l.ctx.Err() != nil {
		return err
	}
	l.book.Breach("not well again after: " + string(f.Kind))
	l.say(ledger.Lab, "NOT WELL", "", "", l.symptoms())
	for _, relay := range l.relays {
		relay.CutAll()
	}
	if err = l.awaitWell(l.patience(healTimeout)); err != nil {
		if l.ctx.Err() != nil {
			return err
		}
		l.say(ledger.Lab, "NOT WELL", "", "", "even after a cut: "+l.symptoms())
	}
	l.book.TroubleEnds(time.Now())
	return nil
}

func (l *lab) awaitWell(bound time.Duration) error {
	var since time.Time
	return l.await(bound, "all well", func() bool {
		switch {
		case !l.well():
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		default:
			return time.Since(since) >= wellFor
		}
		return false
	})
}

// well says that every connection is UP, nothing hangs between the parts, and
// the proxies see what is behind them.
func (l *lab) well() bool { return l.alive() && l.hanging() == 0 && l.book.Lost() == 0 }

func (l *lab) hanging() int { return l.relay.Stats().Lost + l.inner.Stats().Lost }

func (l *lab) symptoms() string {
	return fmt.Sprintf("UP %t, hanging %d, streams lost %d", l.alive(), l.hanging(), l.book.Lost())
}

func (l *lab) soaked() *Soak {
	s := l.soaking
	s.Faults = l.book.Faults()
	if s.ConnectionHours > 0 {
		s.FalsePerThousand = float64(l.book.Counts().DownFalse) / s.ConnectionHours * 1000
	}
	return s
}

package config

import (
	"fmt"
	"time"
)

const (
	// callerTry is how long the SDK gives one try of a caller.
	callerTry = 15 * time.Second
	// attempts is how many attempts at a connection have to fit into it: a first
	// one that meets an address without a machine, and a second one that meets what
	// has not come up yet.
	attempts = 3
	// pingTimeout is how long a ping of a hop may stay unanswered, and minPing is
	// the least silence before one (internal/hop, and gRPC's own bound).
	pingTimeout = 10 * time.Second
	minPing     = 10 * time.Second
	// noticed is how long it may take to notice a black hole where the grace is
	// shorter: the local one always is.
	noticed = 30 * time.Second
	// shortest is the least of these times that is of use: across an ocean TCP and
	// TLS take that long, and anything less is a flood.
	shortest = 100 * time.Millisecond
)

// variableOf is a duration and the name it was set by.
type variableOf struct {
	name  string
	value time.Duration
}

func (v variableOf) String() string { return fmt.Sprintf("%s (%s)", v.name, v.value) }

// hopContradictions holds the times of a hop against the graces and the caller's
// patience. Without a grace, as in stock, there is nothing to keep.
func (c *Config) hopContradictions() []error {
	remote, local := variableOf{"NSM_MONITOR_GRACE", c.MonitorGrace}, variableOf{"NSM_MONITOR_LOCAL_GRACE", c.MonitorLocalGrace}
	dial, pause := variableOf{"NSM_DIAL_TIMEOUT", c.DialTimeout}, variableOf{"NSM_HOP_MAX_BACKOFF", c.HopMaxBackoff}
	probe := variableOf{"NSM_HOP_PROBE_INTERVAL", c.HopProbeInterval}
	var faults []error
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf("config: "+format, args...)) }
	for _, grace := range []variableOf{remote, local} {
		switch {
		case grace.value == 0:
		case dial.value >= grace.value:
			refuse("%v has to be shorter than %v: otherwise the grace ends before the first attempt to connect again does", dial, grace)
		case dial.value > 0 && pause.value >= grace.value-dial.value:
			refuse("%v and %v together have to be shorter than %v: otherwise an outage that ends inside the grace may not be resumed inside it",
				pause, dial, grace)
		}
	}
	longest := longer(remote, local)
	switch {
	case longest.value == 0:
		return faults
	case dial.value >= callerTry/attempts:
		refuse("%v has to be shorter than %s while %v is not 0: a caller's try is %s, "+
			"and a dead first attempt has to leave time for a second and a third", dial, callerTry/attempts, longest, callerTry)
	case dial.value > 0 && pause.value >= callerTry-dial.value:
		refuse("%v and %v together have to be shorter than %s while %v is not 0: that is a caller's try, and all of it could fall into one pause",
			pause, dial, callerTry, longest)
	}
	if bound := max(longest.value, noticed); probe.value > 0 && max(probe.value, minPing) > bound-pingTimeout {
		refuse("%v and the %s that a ping may take have to be within %s, which is %v, or %s if that is shorter: "+
			"otherwise nobody notices in time that a peer has gone without a word", probe, pingTimeout, bound, longest, noticed)
	}
	return faults
}

func longer(a, b variableOf) variableOf {
	if b.value > a.value {
		return b
	}
	return a
}

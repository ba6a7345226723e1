package run

import (
	"slices"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
)

// Figures are what a run measured of the proxy's process. A CPU time of a call
// is user and system time, in milliseconds, divided by the number of calls.
type Figures struct {
	CPUPerFirst   float64 `json:"cpuMillisecondsPerFirstRequest"`
	CPUPerRefresh float64 `json:"cpuMillisecondsPerRefresh"`
	P50           float64 `json:"refreshMillisecondsP50"`
	P99           float64 `json:"refreshMillisecondsP99"`
	// MemoryPerLeg is how much anonymous memory the legs added, after the rounds
	// and a garbage collection, divided by their number.
	MemoryPerLeg float64 `json:"memoryKiBPerLeg"`
	// Memory is all of it then.
	Memory float64 `json:"memoryMiB"`
	// Peak is the most there was before that, with the garbage.
	Peak float64 `json:"peakMemoryMiB"`
	// IdleCPU is the share of one core while nothing is asked for; 0 if that was
	// not measured.
	IdleCPU float64 `json:"idleCPUPercent"`
}

// Counts are what a run counted.
type Counts struct {
	Refreshes int `json:"refreshes"`
	// Connections and Handshakes are those to the far side: of the first Requests
	// and of the refreshes.
	ConnectionsFirst   int `json:"upstreamConnectionsFirst"`
	ConnectionsRefresh int `json:"upstreamConnectionsRefresh"`
	HandshakesFirst    int `json:"upstreamHandshakesFirst"`
	HandshakesRefresh  int `json:"upstreamHandshakesRefresh"`
	ConnectionsOpen    int `json:"upstreamConnectionsOpen"`
	// Registry is the number of connections to registries, Finds of look-ups, and
	// FindsRefresh of those among them that came of refreshes.
	Registry     int `json:"registryConnections"`
	Finds        int `json:"finds"`
	FindsRefresh int `json:"findsRefresh"`
	// Downstream is the number of handshakes that the load made.
	Downstream int `json:"downstreamHandshakes"`
	Streams    int `json:"monitorStreams"`
	InitialUp  int `json:"initialStatesUp"`
	Updates    int `json:"updatesUp"`
	Others     int `json:"otherEvents"`
	Downs      int `json:"downs"`
	Errors     int `json:"errors"`
}

// Result is one run, or the median of several.
type Result struct {
	Subject Subject         `json:"subject"`
	Role    neighbours.Role `json:"role"`
	Mode    load.Mode       `json:"mode"`
	Legs    int             `json:"legs"`
	Rounds  int             `json:"rounds"`
	Runs    int             `json:"runs"`
	// Limit is the GOMEMLIMIT of the proxy, if it had one from the harness.
	Limit string `json:"memoryLimit,omitempty"`
	Figures
	Counts
	// Storm is set if it was one. Of the counts, those of refreshes are 0 then.
	Storm *Weather `json:"storm,omitempty"`
	// FirstError is the first of the errors.
	FirstError string `json:"firstError,omitempty"`
}

// Median takes the median of each figure, and the counts of the run with the
// most errors, or else of the last. All runs have to be of one kind.
func Median(runs []*Result) *Result {
	worst := runs[len(runs)-1]
	for _, r := range runs {
		if r.Errors > worst.Errors {
			worst = r
		}
	}
	result := *worst
	result.Runs = len(runs)
	for _, field := range []func(*Figures) *float64{
		func(f *Figures) *float64 { return &f.CPUPerFirst },
		func(f *Figures) *float64 { return &f.CPUPerRefresh },
		func(f *Figures) *float64 { return &f.P50 },
		func(f *Figures) *float64 { return &f.P99 },
		func(f *Figures) *float64 { return &f.MemoryPerLeg },
		func(f *Figures) *float64 { return &f.Memory },
		func(f *Figures) *float64 { return &f.Peak },
		func(f *Figures) *float64 { return &f.IdleCPU },
	} {
		var values []float64
		for _, r := range runs {
			values = append(values, *field(&r.Figures))
		}
		*field(&result.Figures) = median(values)
	}
	if worst.Storm != nil {
		result.Storm = medianStorm(worst.Storm, runs)
	}
	return &result
}

func median(values []float64) float64 {
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 1 {
		return values[half]
	}
	return (values[half-1] + values[half]) / 2
}

// quantile returns the smallest of the sorted durations, in milliseconds, that
// no less than the share q of them does not exceed.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	index := int(q*float64(len(sorted))+0.999999) - 1
	return milliseconds(sorted[min(max(index, 0), len(sorted)-1)])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

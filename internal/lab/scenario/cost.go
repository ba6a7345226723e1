package scenario

import "github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"

// enough is how many Requests are worth a figure: CPU time is counted in 10 ms,
// and a proxy needs a few for each.
const enough = 20

// Cost is what the proxies used, the outbound one first. A nil is not known on
// this system, or of too few Requests to mean something.
type Cost struct {
	// CPUPerFirst is the time for establishing all connections, one after the
	// other, divided by their number.
	CPUPerFirst *[2]float64 `json:"cpuPerFirstRequestMilliseconds,omitempty"`
	// CPUPerRefresh is the time of the idle phase, with probes and all that
	// comes of cuts, divided by the number of refreshes in it.
	CPUPerRefresh *[2]float64 `json:"cpuPerRefreshMilliseconds,omitempty"`
	// Memory is how much resident memory establishing added for each.
	Memory *[2]float64 `json:"memoryPerConnectionKiB,omitempty"`
}

// reading is what both proxies have used. Its second part is false if unknown.
type reading struct {
	usage [2]proc.Usage
	known bool
}

func (l *lab) meter() reading {
	r := reading{known: true}
	for i, p := range l.proxies {
		usage, ok := p.child.Usage()
		r.usage[i], r.known = usage, r.known && ok
	}
	return r
}

func (c *Cost) establishing(before, after reading, connections int) {
	c.CPUPerFirst = cpu(before, after, connections)
	if c.CPUPerFirst == nil {
		return
	}
	c.Memory = new([2]float64)
	for i := range c.Memory {
		grown := after.usage[i].Memory - before.usage[i].Memory
		c.Memory[i] = float64(grown) / float64(connections) / (1 << 10)
	}
}

func (c *Cost) refreshing(before, after reading, refreshes int) {
	c.CPUPerRefresh = cpu(before, after, refreshes)
}

func cpu(before, after reading, n int) *[2]float64 {
	if n < enough || !before.known || !after.known {
		return nil
	}
	per := new([2]float64)
	for i := range per {
		per[i] = milliseconds(after.usage[i].CPU-before.usage[i].CPU) / float64(n)
	}
	return per
}

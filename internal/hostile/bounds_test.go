//go:build linux

package hostile_test

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
)

const (
	// shippedLimit is that of the manifests that operators run.
	shippedLimit = 100 << 20
	// runtimeLimit is the runtime's share of it.
	runtimeLimit = "GOMEMLIMIT=90MiB"
	// neighbourLegs are a busy domain's: the stock proxy reaches the limit with 180.
	neighbourLegs = 120
)

// TestMemoryIsBounded floods a process that has the shipped limit, while a
// neighbour of stock make goes on refreshing its legs.
func TestMemoryIsBounded(t *testing.T) {
	p := startWith(t, newNeighbours(t), []string{runtimeLimit}, build(t, false))
	before := p.look(t)
	f := newForwarders(t, p, neighbourLegs)
	f.goOn(t)
	after := p.look(t)
	t.Logf("before: %s; with %d legs of a neighbour: %s; %d KiB each", before, neighbourLegs, after, (after.memory-before.memory)/neighbourLegs>>10)
	for _, flood := range floods {
		t.Run(flood.name, func(t *testing.T) {
			require.Positive(t, f.under(t, flood))
			require.Less(t, f.peak.Load(), int64(shippedLimit))
		})
	}
	f.stop(t)
	p.requireWell(t)
}

// flood is one way to have a process hold too much.
type flood struct {
	name  string
	files int
	do    func(t *testing.T, p *process)
}

var floods = []flood{
	{"connections", floodConns, connectionFlood},
	{"subscriptions", 0, func(t *testing.T, p *process) {
		subscriptionFlood(t, p, &networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: "x"}}})
	}},
	{"subscriptions to all", 0, func(t *testing.T, p *process) { subscriptionFlood(t, p, new(networkservice.MonitorScopeSelector)) }},
	{"watches of the registry", 0, watchFlood},
	{"large legs", 0, legFlood},
	{"answers not read", 0, silentFlood},
	{"large headers", 0, headerFlood},
	// What these hold stays for a while: until a connection with messages that have no
	// room is closed, and until this proxy gives up what was given up.
	{"unfinished messages", 0, messageFlood},
	{"given-up Requests", 0, requestFlood},
}

// under goes on refreshing while a stranger floods the process.
func (f *forwarders) under(t *testing.T, flood flood) (refreshed int64) {
	var files syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	if need := uint64(flood.files + 3000); files.Cur < need {
		t.Skipf("it needs %d file descriptors, and there are %d", need, files.Cur)
	}
	stranger := *f.p
	stranger.neighbours = f.p.as(t, strings.ReplaceAll(flood.name, " ", "-"))
	began := time.Now()
	before := f.refreshed.Load()
	f.peak.Store(0)
	flood.do(t, &stranger)
	refreshed = f.refreshed.Load() - before
	t.Logf("%.1f s, peak %.1f MiB, %d refreshes by others meanwhile, slowest %s",
		time.Since(began).Seconds(), mib(f.peak.Load()), refreshed, time.Duration(f.slowest.Swap(0)).Round(time.Millisecond))
	return refreshed
}

// TestThousandLegs has as many of a remote domain, behind one proxy of stock make, as
// the shipped limit is to carry. Then the same floods come, which it is to outlive: what
// it takes then is logged and not required.
func TestThousandLegs(t *testing.T) {
	const name = "memory"
	if !slices.Contains(strings.Split(os.Getenv("NSMGR_PROXY_TEST"), ","), name) {
		t.Skipf("takes a minute: set NSMGR_PROXY_TEST=%s", name)
	}
	p := startWith(t, newNeighbours(t), []string{runtimeLimit}, build(t, false))
	f := newForwarders(t, p, 1_000)
	t.Logf("established: %s", p.look(t))
	for range 2 {
		f.refreshAll(t)
		t.Logf("refreshed: %s", p.look(t))
	}
	t.Logf("peak %.1f MiB, slowest %s", mib(f.peak.Load()), time.Duration(f.slowest.Load()).Round(time.Millisecond))
	require.EqualValues(t, 3*len(f.legs), f.refreshed.Load())
	require.Less(t, f.peak.Load(), int64(shippedLimit))
	f.goOn(t)
	for _, flood := range floods {
		t.Run(flood.name, func(t *testing.T) { f.under(t, flood) })
	}
	f.stop(t)
	p.requireSound(t)
}

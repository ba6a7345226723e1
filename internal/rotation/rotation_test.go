package rotation

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/race"
)

const (
	service    = "service"
	pathLength = 8
	conns      = 3
	// taken is what a process needs to take what its agent says.
	taken = 300 * time.Millisecond
	// behind is 5 s that a hop may go on with a certificate that the far side has
	// renewed, a second of rounding, and what a busy machine takes.
	behind = 9 * time.Second
	// long is the switch for the form of the test with SPIRE's proportions.
	long = "rotation"
)

// form is how long certificates live, and for how many rotations of either side the
// test goes on.
type form struct {
	lifetime  time.Duration
	rotations int
}

func TestRotations(t *testing.T) {
	rotations(t, form{lifetime: 30 * time.Second, rotations: 2})
}

func TestManyRotations(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("NSMGR_PROXY_TEST"), ","), long) {
		t.Skipf("takes six minutes: set NSMGR_PROXY_TEST=%s", long)
	}
	rotations(t, form{lifetime: time.Minute, rotations: 10})
}

func rotations(t *testing.T, f form) {
	if race.Enabled {
		t.Skip("the SDK's registries race with themselves when a registration expires")
	}
	sides := newSides(t, f.lifetime)
	c := newTraffic(t, sides)
	for _, s := range sides {
		c.rotate(s) // what it took to come up is not to count
	}
	c.connect(conns)
	c.watch()
	began := time.Now()

	// SPIRE renews at half of a certificate's life. The sides take turns.
	turn := f.lifetime / 4
	for n := range f.rotations {
		for i, s := range sides {
			c.rotate(s)
			t.Logf("%5.1fs rotation %d of domain %d", time.Since(began).Seconds(), n+1, i+1)
			time.Sleep(time.Until(began.Add(time.Duration(2*n+i+1) * turn)))
		}
	}
	c.changeRoots(sides)
	c.judge(f, time.Since(began))
}

// changeRoots gives both domains a new root, as SPIRE does: into the bundles, then
// into use, then the old one is dropped.
func (c *traffic) changeRoots(sides [2]*side) {
	c.Helper()
	for _, s := range sides {
		require.NoError(c, s.ca.Prepare())
		push(c.T, sides)
		c.register("after a new root of " + s.Name())
		s.ca.Activate()
		c.rotate(s)
	}
	for _, s := range sides {
		s.ca.Retire()
	}
	push(c.T, sides)
	c.register("after the old roots have gone")
}

// rotate renews all certificates of a side, those of the parts of stock first. They
// do it while no call of the client is under way: they dial, and sign after it with
// what they have by then. Our proxy does it in the middle of calls.
func (c *traffic) rotate(s *side) {
	c.Helper()
	c.quiet.Lock()
	err := s.Rotate()
	c.quiet.Unlock()
	require.NoError(c, err)
	c.register("after a rotation of the registries of " + s.Name())
	require.NoError(c, s.agent.Rotate())
	// Whoever has just dialled our proxy holds its answer against the old one.
	time.Sleep(taken)
	c.register("after a rotation of the proxy of " + s.Name())
}

// judge holds what was seen against what is promised.
func (c *traffic) judge(f form, took time.Duration) {
	c.Helper()
	c.quiet.Lock() // what is under way is answered
	defer c.quiet.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(c, c.downs, "DOWNs at the client")
	require.Zero(c, c.closes, "Closes at the endpoint")
	require.NoError(c, c.watched, "the watch goes on")
	// A token lives as long as the youngest certificate at its handshake: half of its
	// life at least, less what a hop may be behind. The client refreshes at a fifth of
	// what the shortest has left.
	least := f.lifetime/2 - behind
	most := int(took/(least/5)) + 1
	require.Len(c, c.calls, conns)
	for id, calls := range c.calls {
		shortest := f.lifetime
		for n, call := range calls {
			require.NoError(c, call.Err, "call %d of %s, a %s", n, id, call.Kind)
			if n > 0 {
				require.Equal(c, domain.Refresh, call.Kind)
				grown(c.T, calls[n-1], call)
			}
			for _, segment := range call.Path.GetPathSegments() {
				shortest = min(shortest, segment.GetExpires().AsTime().Sub(call.End))
			}
		}
		c.Logf("%s: %d Requests in %s (at most %d), shortest token %s", id, len(calls), took.Round(time.Second), most, shortest)
		require.Equal(c, len(calls), c.requests[id], "nobody asks but the client")
		require.LessOrEqual(c, len(calls), most, "no storm")
		require.Greater(c, shortest, least)
	}
	c.connections()
}

// connections wants one upstream connection each, and that of the watch: the old ones
// have gone with their last call.
func (c *traffic) connections() {
	c.Helper()
	for what, r := range map[string]*lbtest.Relay{
		"to the far proxy": c.far.front, "to the far nsmgr": c.far.nsmgr, "to the near registry": c.near.registry,
	} {
		require.Eventually(c, func() bool { return r.Stats().Open <= 1 }, patience, taken, "connections "+what)
	}
	require.Eventually(c, func() bool { return c.near.registryProxy.Stats().Open <= 2 }, patience, taken, "connections to the registry proxy")
}

// grown wants no expiry to go back.
func grown(t *testing.T, before, after domain.Call) {
	t.Helper()
	for i, segment := range after.Path.GetPathSegments() {
		was, is := before.Path.GetPathSegments()[i].GetExpires().AsTime(), segment.GetExpires().AsTime()
		require.False(t, is.Before(was), "segment %d expired at %s and expires at %s", i, was, is)
	}
}

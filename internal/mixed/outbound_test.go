package mixed

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// idleLimit is the balancer's, and the probe has to come a good deal sooner
	// on a machine that is busy.
	idleLimit = 6 * time.Second
	probe     = time.Second
	// idleLimits is for how many of them a connection is left alone.
	idleLimits = 4
	// outage is well inside the grace of 30 s.
	outage = 4 * time.Second
	// noticed bounds the time from a black hole to the next dial: gRPC pings no
	// sooner than after 10 s of silence, and waits 10 s for the answer.
	noticed = 30 * time.Second
)

// Our outbound proxy, a stock inbound one, and a balancer between them.
func TestOursToStock(t *testing.T) {
	t.Parallel()
	client, endpoint := newDomains(t)
	inbound := newProxy(t, endpoint, "inbound")
	inbound.start(t, stock)
	outbound := newProxy(t, client, "outbound",
		"NSM_HOP_PROBE_INTERVAL="+probe.String(), "NSM_DIAL_TIMEOUT=2s", "NSM_HOP_MAX_BACKOFF=500ms")
	outbound.start(t, ours)
	unprobed := newProxy(t, client, "unprobed", "NSM_HOP_PROBE_INTERVAL=0")
	unprobed.start(t, ours)

	for name, c := range map[string]struct {
		proxy *proxy
		play  func(c *connection)
	}{
		"idle limit above the probe":     {outbound, idleLimitIsNotReached},
		"idle cuts without a probe":      {unprobed, idleCutsAreResumed},
		"outright cuts":                  {outbound, cutsAreResumed},
		"outage":                         {outbound, outageIsNotSeen},
		"black hole":                     {outbound, blackHoleIsNoticed},
		"refresh in a black hole":        {outbound, refreshInABlackHoleIsAnswered},
		"endpoint dies":                  {outbound, (*connection).holds},
		"endpoint dies during an outage": {outbound, deathInAnOutageIsToldAfterIt},
		"the nsmgr behind it dies":       {outbound, farSideEnds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.play(connect(t, c.proxy, inbound))
		})
	}
	t.Run("balancer moves", func(t *testing.T) {
		t.Parallel()
		movedBalancerIsFollowed(connect(t, outbound, inbound), inbound)
	})
}

func idleLimitIsNotReached(c *connection) {
	c.relay.SetIdle(idleLimit)
	c.nothing(idleLimits * idleLimit)
	require.Zero(c, c.relay.Stats().Cuts)
	require.EqualValues(c, 1, c.relay.Stats().Accepted, "one hop all the time")
	c.holds()
}

func idleCutsAreResumed(c *connection) {
	c.relay.SetIdle(time.Second)
	for cuts := int64(4); cuts <= 12; cuts += 4 {
		c.eventually(func() bool { return c.relay.Stats().Cuts >= cuts }, "the balancer cuts")
		c.refresh()
	}
	require.GreaterOrEqual(c, c.relay.Stats().Accepted, c.relay.Stats().Cuts)
	c.relay.SetIdle(0)
	c.holds()
}

func cutsAreResumed(c *connection) {
	for n := range int64(3) {
		require.Equal(c, 1, c.relay.CutAll())
		c.eventually(func() bool { return c.relay.Stats().Accepted == n+2 && c.relay.Stats().Open == 1 }, "dialled again")
	}
	require.Len(c, c.far.Requests(), 1, "and nothing requested for it")
	c.holds()
	require.Equal(c, 1, c.relay.ResetAll())
	c.holds()
}

func outageIsNotSeen(c *connection) {
	c.relay.SetRefuse(true)
	c.relay.CutAll()
	c.nothing(outage / 2)
	require.NoError(c, c.tryRefresh(), "answered inside the grace")
	c.saw(up)
	c.nothing(outage / 2)
	asked := len(c.far.Requests())
	c.relay.SetRefuse(false)
	c.eventually(func() bool { return len(c.far.Requests()) > asked }, "the refresh is delivered")
	c.holds()
}

func deathInAnOutageIsToldAfterIt(c *connection) {
	c.relay.SetRefuse(true)
	c.relay.CutAll()
	c.eventually(func() bool { open, _ := c.far.Streams(); return open == 1 }, "watched by the inbound proxy")
	c.far.Delete()
	c.nothing(outage)
	c.relay.SetRefuse(false)
	c.saw(down)
	c.refresh()
}

func blackHoleIsNoticed(c *connection) {
	c.relay.SetBlackhole(true)
	began := time.Now()
	c.eventually(func() bool { return c.relay.Stats().Accepted > 1 }, "dialled anew")
	c.Logf("noticed after %s", time.Since(began).Round(time.Millisecond))
	require.Less(c, time.Since(began), noticed)
	c.relay.SetBlackhole(false)
	c.holds()
}

func refreshInABlackHoleIsAnswered(c *connection) {
	c.relay.SetBlackhole(true)
	c.refresh()
	asked := len(c.far.Requests())
	c.relay.SetBlackhole(false)
	c.eventually(func() bool { return len(c.far.Requests()) > asked }, "the refresh is delivered")
	c.holds()
}

func farSideEnds(c *connection) {
	c.dies(c.farEnds)
}

func movedBalancerIsFollowed(c *connection, inbound *proxy) {
	moved := c.balancer(inbound)
	c.proxy.domain.registry.set(c.name(), moved.Addr())
	c.relay.SetRefuse(true)
	c.relay.CutAll()
	asked := len(c.far.Requests())
	c.refresh()
	c.eventually(func() bool { return len(c.far.Requests()) > asked }, "the refresh gets there")
	require.EqualValues(c, 1, moved.Stats().Accepted)
	requests := c.far.Requests()
	// What the first Request did not know yet comes after it.
	require.True(c, strings.HasPrefix(ids(requests[len(requests)-1].GetConnection()), ids(requests[0].GetConnection())))
	c.holds()
}

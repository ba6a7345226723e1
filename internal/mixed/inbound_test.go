package mixed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// pingedLimit is above the 20 s after which our server pings a silent client.
	pingedLimit = 25 * time.Second
	// pingedFor has room for two of these limits.
	pingedFor = 52 * time.Second
	// cutLimit is one that stock proxies fail at.
	cutLimit = 2 * time.Second
)

// A stock outbound proxy and a balancer that cuts what is idle. It says DOWN for
// each cut, whoever is behind the balancer: so our inbound one has to prevent them.
func TestStockToOurs(t *testing.T) {
	t.Parallel()
	client, endpoint := newDomains(t)
	outbound := newProxy(t, client, "outbound")
	outbound.start(t, stock)
	inbound := newProxy(t, endpoint, "inbound")
	inbound.start(t, ours)

	t.Run("server pings prevent the cut", func(t *testing.T) {
		t.Parallel()
		c := connect(t, outbound, inbound)
		c.relay.SetIdle(pingedLimit)
		c.nothing(pingedFor)
		require.Zero(t, c.relay.Stats().Cuts)
		require.EqualValues(t, 1, c.relay.Stats().Accepted)
		c.relay.SetIdle(0)
		require.NoError(t, c.tryRefresh())
		c.diesBehindStock()
	})
	t.Run("endpoint dies", func(t *testing.T) {
		t.Parallel()
		connect(t, outbound, inbound).diesBehindStock()
	})
	t.Run("a cut is a DOWN, so the first test bites", func(t *testing.T) {
		t.Parallel()
		c := connect(t, outbound, inbound)
		c.relay.SetIdle(cutLimit)
		c.saw(down)
		require.EqualValues(t, 1, c.relay.Stats().Cuts)
	})
}

// diesBehindStock wants a DOWN for the endpoint's death from a stock outbound
// proxy, which may say UP more than once before.
func (c *connection) diesBehindStock() {
	c.Helper()
	c.eventually(func() bool { open, _ := c.far.Streams(); return open == 1 }, "the far side is watched")
	c.far.Delete()
	var events []string
	c.eventually(func() bool {
		events = append(events, c.sub.take()...)
		return len(events) > 0 && events[len(events)-1] != up
	}, "DOWN or DELETE")
	require.Contains(c, []string{down, gone}, events[len(events)-1])
	require.NotContains(c, events[:len(events)-1], down)
}

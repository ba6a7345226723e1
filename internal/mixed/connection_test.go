package mixed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/common"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/vxlan"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	// callTime is what the SDK gives a caller's try.
	callTime = 15 * time.Second
	// inside and outside are the tunnel addresses of the client's node.
	inside, outside = "10.0.1.9", "203.0.113.9"
	// outboundIndex is the outbound proxy's place in the path.
	outboundIndex = 3
	// tick is the pause between two looks at a condition.
	tick = 5 * time.Millisecond
)

// serial makes names that no other connection has.
var serial atomic.Int64

// connection is one connection as the neighbours at its ends see it: the
// forwarder before the outbound proxy, and the nsmgr behind the inbound one.
// Between the two proxies is a balancer.
type connection struct {
	testing.TB
	id       string // the forwarder's
	endpoint string // without its domain
	proxy    *proxy // the outbound one
	cc       *grpc.ClientConn
	relay    *lbtest.Relay
	far      *lbtest.Peer
	farAddr  string
	farEnds  func()

	conn *networkservice.Connection // as last answered
	sub  *subscriber
}

// connect makes a connection through both proxies, up to its first UP.
func connect(t testing.TB, outbound, inbound *proxy) *connection {
	t.Helper()
	n := serial.Add(1)
	c := &connection{
		TB: t, proxy: outbound, far: lbtest.NewPeer("far"),
		id: fmt.Sprintf("forwarder-%d", n), endpoint: fmt.Sprintf("endpoint-%d", n),
	}
	c.farAddr, c.farEnds = inbound.domain.serve(t, c.far.Register)
	inbound.domain.home(c.endpoint, c.farAddr)
	c.relay = c.balancer(inbound)
	outbound.domain.registry.set(c.name(), c.relay.Addr())
	c.cc = outbound.domain.dial(t, outbound.addr)
	find(t, c.cc, c.name())
	c.sub = c.subscribe()
	t.Cleanup(func() { c.sub.end() })

	var err error
	c.conn, err = c.request(c.first(n))
	require.NoError(t, err)
	require.Len(t, c.conn.GetPath().GetPathSegments(), 7, "two proxies, and the far side behind them")
	c.saw(up)
	asked := c.far.Requests()[0]
	require.Equal(t, c.endpoint, asked.GetConnection().GetNetworkServiceEndpointName())
	tunnel := asked.GetMechanismPreferences()[0].GetParameters()
	require.Equal(t, outside, tunnel[common.SrcIP])
	return c
}

// balancer is a relay in front of the inbound proxy.
func (c *connection) balancer(inbound *proxy) *lbtest.Relay {
	c.Helper()
	relay, err := lbtest.Listen("127.0.0.1:0", inbound.addr)
	require.NoError(c, err)
	c.Cleanup(func() { require.NoError(c, relay.Close()) })
	return relay
}

// name is the endpoint's name in the client's domain.
func (c *connection) name() string { return c.endpoint + "@cluster2" }

// first is what the forwarder sends first.
func (c *connection) first(n int64) *networkservice.NetworkServiceRequest {
	path := lbtest.NewPath(n)
	return &networkservice.NetworkServiceRequest{
		Connection: &networkservice.Connection{
			Id: c.id, NetworkService: "service@cluster2", NetworkServiceEndpointName: c.name(),
			Context: &networkservice.ConnectionContext{}, Path: path,
		},
		MechanismPreferences: []*networkservice.Mechanism{{
			Cls: "REMOTE", Type: vxlan.MECHANISM, Parameters: map[string]string{common.SrcIP: inside},
		}},
	}
}

func (c *connection) request(r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	ctx, cancel := context.WithTimeout(c.Context(), callTime)
	defer cancel()
	return networkservice.NewNetworkServiceClient(c.cc).Request(ctx, r, grpc.WaitForReady(true))
}

var errOtherIDs = errors.New("other ids")

// tryRefresh renews the connection. One that was answered has kept its ids.
func (c *connection) tryRefresh() error {
	refreshed, err := c.request(&networkservice.NetworkServiceRequest{Connection: c.conn.Clone()})
	if err != nil {
		return err
	}
	if want, got := ids(c.conn), ids(refreshed); want != got {
		return fmt.Errorf("%w: were %s and are %s", errOtherIDs, want, got)
	}
	c.conn = refreshed
	return nil
}

// refresh renews the connection, and wants one UP for it.
func (c *connection) refresh() {
	c.Helper()
	require.NoError(c, c.tryRefresh())
	c.saw(up)
}

// holds wants the far side's word to come through to the subscriber, at once and
// alone, and the connection to be well after it.
func (c *connection) holds() {
	c.Helper()
	c.refresh()
	c.dies(func() { c.far.Say(func(conn *networkservice.Connection) { conn.State = networkservice.State_DOWN }) })
	c.refresh()
	require.Empty(c, c.far.Closes())
}

// dies wants one DOWN for what it does, at once: by far sooner than any grace.
func (c *connection) dies(die func()) {
	c.Helper()
	c.eventually(func() bool { open, _ := c.far.Streams(); return open == 1 }, "the far side is watched")
	began := time.Now()
	die()
	c.saw(down)
	require.Less(c, time.Since(began), 5*time.Second)
	c.Logf("DOWN after %s", time.Since(began).Round(time.Millisecond))
}

func (c *connection) eventually(condition func() bool, what string) {
	c.Helper()
	require.Eventually(c, condition, patience, tick, what)
}

// saw wants exactly these events since it was last asked.
func (c *connection) saw(want ...string) {
	c.Helper()
	c.eventually(func() bool { return c.sub.count() >= len(want) }, strings.Join(want, " "))
	require.Equal(c, want, c.sub.take())
}

// settled waits until what is on its way to the subscriber has arrived: the answer
// of a refresh and its event come on different streams.
func (c *connection) settled() {
	c.Helper()
	before := -1
	require.Eventually(c, func() bool {
		now := c.sub.count()
		same := now == before
		before = now
		return same
	}, patience, 50*tick, "events cease")
}

// nothing wants no event for that time.
func (c *connection) nothing(d time.Duration) {
	c.Helper()
	require.Never(c, func() bool { return c.sub.count() > 0 }, d, 10*tick, "an event in a quiet time")
}

func ids(conn *networkservice.Connection) string {
	var all []string
	for _, segment := range conn.GetPath().GetPathSegments() {
		all = append(all, segment.GetId())
	}
	return strings.Join(all, " ")
}

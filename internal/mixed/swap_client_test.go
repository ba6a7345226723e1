package mixed

import (
	"context"
	"net/url"
	"sync"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/vxlan"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/client"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/heal"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// chosen is the endpoint that there is.
const chosen = "endpoint@cluster2"

// What the SDK's own client with heal makes of the swaps. A proxy that it talks to
// is lost to it, whoever comes next; one further away is ours to hide.
func TestSwap_SDKClient(t *testing.T) {
	t.Parallel()
	cluster1, cluster2 := newDomains(t)
	outbound, inbound := newProxy(t, cluster1, "outbound"), newProxy(t, cluster2, "inbound")
	outbound.start(t, stock)
	inbound.start(t, stock)
	far := lbtest.NewPeer("far")
	farAddr, _ := cluster2.serve(t, far.Register)
	cluster2.home("endpoint", farAddr)
	cluster1.registry.set(chosen, inbound.addr)
	find(t, cluster1.dial(t, outbound.addr), chosen)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := new(witness)
	c := client.NewClient(ctx,
		client.WithName("client"),
		client.WithClientURL(&url.URL{Scheme: "tcp", Host: outbound.addr}),
		client.WithHealClient(heal.NewClient(ctx)),
		client.WithAdditionalFunctionality(w),
		client.WithDialOptions(cluster1.dialOptions()...),
		client.WithDialTimeout(patience))
	conn, err := c.Request(ctx, &networkservice.NetworkServiceRequest{
		Connection: &networkservice.Connection{
			Id: "sdk-client", NetworkService: "service@cluster2", NetworkServiceEndpointName: chosen,
		},
		MechanismPreferences: []*networkservice.Mechanism{{Cls: "REMOTE", Type: vxlan.MECHANISM}},
	})
	require.NoError(t, err)
	eventually := func(condition func() bool, what string) {
		t.Helper()
		require.Eventually(t, condition, patience, tick, what)
	}
	watched := func() bool { open, _ := far.Streams(); return open == 1 }
	eventually(watched, "established")

	outbound.swap(t, ours)
	eventually(func() bool { return len(w.requests()) > 1 }, "the client heals")
	healed := w.requests()
	t.Logf("outbound swap: the client asked %v; the far side saw %d Requests and %d Closes",
		healed[1:], len(far.Requests())-1, len(far.Closes()))
	eventually(func() bool { return len(far.Conns()) == 1 && watched() }, "one connection in the end")

	asked, closed := len(far.Requests()), len(far.Closes())
	inbound.swap(t, ours)
	eventually(func() bool { return len(far.Requests()) > asked && watched() }, "put back in place")
	require.Equal(t, healed, w.requests(), "the client does not notice")
	require.Len(t, far.Closes(), closed)
	require.Len(t, far.Conns(), 1)

	far.Say(func(conn *networkservice.Connection) { conn.State = networkservice.State_DOWN })
	eventually(func() bool { return len(w.requests()) > len(healed) }, "a true DOWN is noticed")
	_, err = c.Close(ctx, conn)
	require.NoError(t, err)
	eventually(func() bool { return len(far.Conns()) == 0 }, "nothing is left")
}

// witness is a client element that notes the state each Request asks for. A
// reselect leaves the choice of the endpoint open, which it makes as a nsmgr does.
type witness struct {
	mu     sync.Mutex
	states []string // guarded by mu
}

func (w *witness) Request(ctx context.Context, r *networkservice.NetworkServiceRequest, opts ...grpc.CallOption) (*networkservice.Connection, error) {
	state := r.GetConnection().GetState().String()
	r.Connection.NetworkServiceEndpointName = chosen
	conn, err := next.Client(ctx).Request(ctx, r, opts...)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.states = append(w.states, state)
	}
	return conn, err
}

func (w *witness) Close(ctx context.Context, conn *networkservice.Connection, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	return next.Client(ctx).Close(ctx, conn, opts...)
}

func (w *witness) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.states...)
}

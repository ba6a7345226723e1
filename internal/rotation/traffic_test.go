package rotation

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	registrychain "github.com/networkservicemesh/sdk/pkg/registry/core/chain"
	"github.com/stretchr/testify/require"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
)

// traffic is what goes on between the domains, and what was seen of it.
type traffic struct {
	*testing.T
	near, far *side

	// quiet is held for reading by a call of the client, and for writing by who wants
	// none in flight.
	quiet sync.RWMutex

	mu sync.Mutex
	// All following fields are guarded by mu.
	calls    map[string][]domain.Call // the client's, by connection
	requests map[string]int           // at the endpoint, by the client's id
	closes   int                      // at the endpoint
	downs    []string
	watched  error // why the watch ended
}

func newTraffic(t *testing.T, sides [2]*side) *traffic {
	return &traffic{
		T: t, near: sides[0], far: sides[1],
		calls: make(map[string][]domain.Call), requests: make(map[string]int),
	}
}

// connect makes connections that the SDK's client keeps refreshing.
func (c *traffic) connect(n int) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	kill, err := c.far.StartEndpoint(ctx, "endpoint", service, &endpointWitness{c})
	require.NoError(c, err)
	c.Cleanup(kill)
	client, err := c.near.NewClient(
		func(domain.Call) { c.quiet.RLock() },
		func(call domain.Call) {
			c.quiet.RUnlock()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls[call.Conn] = append(c.calls[call.Conn], call)
		})
	require.NoError(c, err)
	for i := range n {
		conn, err := client.Connect(ctx, fmt.Sprintf("conn-%d", i), service+"@"+c.far.Name())
		require.NoError(c, err)
		require.Len(c, conn.GetPath().GetPathSegments(), pathLength)
		c.subscribe(conn)
	}
}

// subscribe notes the DOWNs and DELETEs that the client's nsmgr tells.
func (c *traffic) subscribe(conn *networkservice.Connection) {
	c.Helper()
	cc := c.near.dial(c.T, c.near.NSMgrURL.Host)
	ctx, cancel := context.WithCancel(context.Background())
	segment := conn.GetPath().GetPathSegments()[1]
	stream, err := networkservice.NewMonitorConnectionClient(cc).MonitorConnections(ctx, &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Id: segment.GetId(), Name: segment.GetName()}},
	})
	require.NoError(c, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			event, err := stream.Recv()
			if err != nil {
				if ctx.Err() == nil {
					c.down("stream: " + err.Error())
				}
				return
			}
			for _, changed := range event.GetConnections() {
				if event.GetType() == networkservice.ConnectionEventType_DELETE || changed.GetState() == networkservice.State_DOWN {
					c.down(event.GetType().String() + " " + changed.GetState().String())
				}
			}
		}
	}()
	c.Cleanup(func() {
		cancel()
		<-done
		_ = cc.Close()
	})
}

func (c *traffic) down(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.downs = append(c.downs, what)
}

// registries are the near registry, over a connection of their own, as stock has it.
func (c *traffic) registries() (registry.NetworkServiceRegistryClient, registry.NetworkServiceEndpointRegistryClient, func()) {
	c.Helper()
	cc := c.near.dial(c.T, c.near.RegistryURL.Host)
	return registrychain.NewNetworkServiceRegistryClient(
			grpcmetadata.NewNetworkServiceRegistryClient(), registry.NewNetworkServiceRegistryClient(cc)),
		registrychain.NewNetworkServiceEndpointRegistryClient(
			grpcmetadata.NewNetworkServiceEndpointRegistryClient(), registry.NewNetworkServiceEndpointRegistryClient(cc)),
		func() { _ = cc.Close() }
}

// register registers a service and an endpoint of the near domain in the far one,
// the endpoint of that name again, and unregisters another one.
func (c *traffic) register(why string) {
	c.Helper()
	ns, nse, done := c.registries()
	defer done()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	path := func() context.Context { return grpcmetadata.PathWithContext(ctx, new(grpcmetadata.Path)) }
	at := "@" + c.far.Name()
	_, err := ns.Register(path(), &registry.NetworkService{Name: "floating" + at})
	require.NoError(c, err, why)
	for _, name := range []string{"kept", "passing"} {
		_, err = nse.Register(path(), &registry.NetworkServiceEndpoint{
			Name: name + at, Url: c.near.NSMgrURL.String(), NetworkServiceNames: []string{"floating" + at},
		})
		require.NoError(c, err, why)
	}
	_, err = nse.Unregister(path(), &registry.NetworkServiceEndpoint{Name: "passing" + at})
	require.NoError(c, err, why)
}

// watch watches the far domain's endpoints.
func (c *traffic) watch() {
	c.Helper()
	_, nse, closeCC := c.registries()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := nse.Find(ctx, &registry.NetworkServiceEndpointQuery{
		NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: "kept@" + c.far.Name()}, Watch: true,
	})
	require.NoError(c, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := stream.Recv(); err != nil {
				c.mu.Lock()
				c.watched = err
				c.mu.Unlock()
				return
			}
		}
	}()
	c.Cleanup(func() {
		cancel()
		<-done
		closeCC()
	})
}

// endpointWitness counts what arrives at the endpoint.
type endpointWitness struct{ traffic *traffic }

func (e *endpointWitness) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	e.traffic.mu.Lock()
	e.traffic.requests[request.GetConnection().GetPath().GetPathSegments()[0].GetId()]++
	e.traffic.mu.Unlock()
	return next.Server(ctx).Request(ctx, request)
}

func (e *endpointWitness) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	e.traffic.mu.Lock()
	e.traffic.closes++
	e.traffic.mu.Unlock()
	return next.Server(ctx).Close(ctx, conn)
}

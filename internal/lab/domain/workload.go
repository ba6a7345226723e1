package domain

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/kernel"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/client"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/endpoint"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/authorize"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/heal"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/mechanisms"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/null"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/retry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/chain"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// StartEndpoint starts and registers an endpoint of the given service, and
// registers the service. The returned function kills it: its connections
// break, its registration stays, as when a node loses power. Seen are further elements
// at the end of its chain.
func (d *Domain) StartEndpoint(
	ctx context.Context, name, service string, seen ...networkservice.NetworkServiceServer,
) (kill func(), err error) {
	// One identity for all: the registry lets nobody but the first who registered a
	// service register it again.
	id, err := d.Identity("endpoint")
	if err != nil {
		return nil, err
	}
	listener, at, err := listen(d.Inside())
	if err != nil {
		return nil, err
	}
	chainCtx, cancel := context.WithCancel(d.ctx)
	server := endpoint.NewServer(chainCtx, id.Tokens,
		endpoint.WithName(name),
		endpoint.WithAuthorizeServer(authorize.NewServer()),
		endpoint.WithAdditionalFunctionality(append([]networkservice.NetworkServiceServer{
			mechanisms.NewServer(map[string]networkservice.NetworkServiceServer{kernel.MECHANISM: null.NewServer()}),
		}, seen...)...))
	stop, err := d.serve(listener, id, server.Register)
	if err != nil {
		cancel()
		return nil, err
	}
	kill = func() {
		stop()
		cancel()
	}
	if _, err = d.serviceRegistry(id).Register(ctx, &registry.NetworkService{Name: service}); err != nil {
		kill()
		return nil, fmt.Errorf("domain %s: service %s: %w", d.Name(), service, err)
	}
	// The registration's refresh must end with the endpoint.
	_, err = d.endpointRegistryUntil(chainCtx, id).Register(ctx, &registry.NetworkServiceEndpoint{
		Name:                name,
		Url:                 at.String(),
		NetworkServiceNames: []string{service},
	})
	if err != nil {
		kill()
		return nil, fmt.Errorf("domain %s: endpoint %s: %w", d.Name(), name, err)
	}
	return kill, nil
}

// Kind says why a client sent a Request.
type Kind string

const (
	First    Kind = "first"    // First is the first Request of a connection.
	Refresh  Kind = "refresh"  // Refresh is the renewal of a connection that is UP.
	Reselect Kind = "reselect" // Reselect is a heal: a new path is asked for.
	Close    Kind = "close"    // Close is no Request.
)

// Call is one Request or Close of a client, as it left towards the nsmgr.
type Call struct {
	Conn       string // the connection's id
	Kind       Kind
	Start, End time.Time
	Path       *networkservice.Path // of the answer
	Err        error
}

// Client is a workload that wants connections.
type Client struct {
	client networkservice.NetworkServiceClient
}

// NewClient is a client with the SDK's own refresh and heal. onStart is called
// when a Request or Close leaves, onEnd when it is answered.
func (d *Domain) NewClient(onStart, onEnd func(Call)) (*Client, error) {
	id, err := d.Identity("client")
	if err != nil {
		return nil, err
	}
	return &Client{client: retry.NewClient(client.NewClient(d.ctx,
		client.WithName("client"),
		client.WithClientURL(d.NSMgrURL),
		client.WithHealClient(chain.NewNetworkServiceClient(heal.NewClient(d.ctx), &witness{
			known: make(map[string]struct{}), onStart: onStart, onEnd: onEnd,
		})),
		client.WithAuthorizeClient(authorize.NewClient()),
		client.WithDialOptions(id.DialOptions()...),
		client.WithDialTimeout(dialTimeout),
	), retry.WithTryTimeout(d.TryTime))}, nil
}

// Connect asks for service under the given connection id until ctx ends.
func (c *Client) Connect(ctx context.Context, id, service string) (*networkservice.Connection, error) {
	conn, err := c.client.Request(ctx, &networkservice.NetworkServiceRequest{
		Connection:           &networkservice.Connection{Id: id, NetworkService: service},
		MechanismPreferences: kernelPreference(),
	})
	if err != nil {
		return nil, fmt.Errorf("connection %s: %w", id, err)
	}
	return conn, nil
}

// Close gives the connection up.
func (c *Client) Close(ctx context.Context, conn *networkservice.Connection) error {
	if _, err := c.client.Close(ctx, conn); err != nil {
		return fmt.Errorf("connection %s: %w", conn.GetId(), err)
	}
	return nil
}

// witness is a client element behind begin, refresh and heal, so that it sees
// each of their Requests and nothing else, and before anything is dialled for them.
type witness struct {
	onStart, onEnd func(Call)

	mu    sync.Mutex
	known map[string]struct{} // connections that had a successful Request
}

func (w *witness) Request(ctx context.Context, request *networkservice.NetworkServiceRequest, opts ...grpc.CallOption) (*networkservice.Connection, error) {
	call := Call{Conn: request.GetConnection().GetId(), Start: time.Now()}
	w.mu.Lock()
	_, known := w.known[call.Conn]
	w.mu.Unlock()
	switch {
	case request.GetConnection().GetState() == networkservice.State_RESELECT_REQUESTED:
		call.Kind = Reselect
	case known:
		call.Kind = Refresh
	default:
		call.Kind = First
	}
	w.onStart(call)

	conn, err := next.Client(ctx).Request(ctx, request, opts...)
	if err == nil {
		w.mu.Lock()
		w.known[call.Conn] = struct{}{}
		w.mu.Unlock()
		call.Path = conn.GetPath().Clone()
	}
	call.End, call.Err = time.Now(), err
	w.onEnd(call)
	return conn, err
}

func (w *witness) Close(ctx context.Context, conn *networkservice.Connection, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	call := Call{Conn: conn.GetId(), Kind: Close, Start: time.Now()}
	w.onStart(call)
	answer, err := next.Client(ctx).Close(ctx, conn, opts...)
	call.End, call.Err = time.Now(), err
	w.onEnd(call)
	return answer, err
}

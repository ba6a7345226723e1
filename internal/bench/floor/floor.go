// Package floor is the least that a proxy on this wire can do: mutual TLS in, one
// token signed, one connection out that all share, one subscriber told. It is
// what the cost of a real proxy is held against, and no proxy to run: it looks
// nothing up, watches nothing, remembers nothing and repairs nothing.
//
// A call that fails upstream fails downstream, as it is. A subscriber that does
// not read loses events.
package floor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// backlog is how many events a subscriber may be behind.
const backlog = 16

// proxy passes on what it gets.
type proxy struct {
	tokens   token.GeneratorFunc
	upstream networkservice.NetworkServiceClient

	// mu guards the following field.
	mu sync.Mutex
	// subscribers are known by the id of their own segment.
	subscribers map[string]chan *networkservice.ConnectionEvent
}

// Register adds the proxy and a health service to a gRPC server.
func Register(s *grpc.Server, tokens token.GeneratorFunc, upstream grpc.ClientConnInterface) {
	p := &proxy{
		tokens:      tokens,
		upstream:    networkservice.NewNetworkServiceClient(upstream),
		subscribers: make(map[string]chan *networkservice.ConnectionEvent),
	}
	networkservice.RegisterNetworkServiceServer(s, p)
	networkservice.RegisterMonitorConnectionServer(s, p)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
}

// Request adds the proxy's own segment, asks upstream and tells the subscriber.
func (p *proxy) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	ctx, err := p.enter(ctx, request.GetConnection())
	if err != nil {
		return nil, err
	}
	conn, err := p.upstream.Request(ctx, request)
	if err != nil {
		return nil, err
	}
	p.tell(conn)
	leave(conn)
	return conn, nil
}

// Close passes the Close on.
func (p *proxy) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	ctx, err := p.enter(ctx, conn)
	if err != nil {
		return nil, err
	}
	return p.upstream.Close(ctx, conn)
}

// enter makes the own segment the current one, with a new token, and notes the
// caller's token. The same token goes with the call.
func (p *proxy) enter(ctx context.Context, conn *networkservice.Connection) (context.Context, error) {
	path := conn.GetPath()
	index := int(path.GetIndex())
	if index >= len(path.GetPathSegments()) {
		return nil, status.Error(codes.InvalidArgument, "floor: the path has no segment at its index")
	}
	var info credentials.AuthInfo
	if caller, ok := peer.FromContext(ctx); ok {
		info = caller.AuthInfo
	}
	tok, expires, err := p.tokens(info)
	if err != nil {
		return nil, fmt.Errorf("floor: token: %w", err)
	}
	if theirs, until, err := token.FromContext(ctx); err == nil {
		path.PathSegments[index].Token, path.PathSegments[index].Expires = theirs, timestamppb.New(until)
	}
	index++
	if index == len(path.PathSegments) {
		path.PathSegments = append(path.PathSegments, &networkservice.PathSegment{Name: "floor", Id: uuid.NewString()})
	}
	own := path.PathSegments[index]
	own.Token, own.Expires = tok, timestamppb.New(expires)
	path.Index, conn.Id = uint32(index), own.GetId()
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(
		"nsm-client-token", tok, "nsm-client-token-expires", expires.Format(time.RFC3339Nano),
	)), nil
}

// leave makes the caller's segment the current one again.
func leave(conn *networkservice.Connection) {
	conn.Path.Index--
	conn.Id = conn.GetCurrentPathSegment().GetId()
}

// tell puts an event before the caller's subscriber. It shares with the answer
// what neither changes any more.
func (p *proxy) tell(conn *networkservice.Connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	events, ok := p.subscribers[conn.GetPrevPathSegment().GetId()]
	if !ok {
		return
	}
	event := &networkservice.ConnectionEvent{
		Type: networkservice.ConnectionEventType_UPDATE,
		Connections: map[string]*networkservice.Connection{conn.GetId(): {
			Id:                         conn.GetId(),
			NetworkService:             conn.GetNetworkService(),
			NetworkServiceEndpointName: conn.GetNetworkServiceEndpointName(),
			Mechanism:                  conn.GetMechanism(),
			Context:                    conn.GetContext(),
			Path:                       &networkservice.Path{Index: conn.GetPath().GetIndex(), PathSegments: conn.GetPath().GetPathSegments()},
			State:                      networkservice.State_UP,
		}},
	}
	select {
	case events <- event:
	default:
	}
}

// MonitorConnections starts with an initial state that is always empty, for
// there is nothing that could fill it.
func (p *proxy) MonitorConnections(selector *networkservice.MonitorScopeSelector, stream networkservice.MonitorConnection_MonitorConnectionsServer) error {
	segments := selector.GetPathSegments()
	if len(segments) == 0 {
		return status.Error(codes.InvalidArgument, "floor: the selector is empty")
	}
	id, events := segments[len(segments)-1].GetId(), make(chan *networkservice.ConnectionEvent, backlog)
	p.mu.Lock()
	p.subscribers[id] = events
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.subscribers[id] == events {
			delete(p.subscribers, id)
		}
	}()
	event := &networkservice.ConnectionEvent{Type: networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER}
	for {
		if err := stream.Send(event); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case event = <-events:
		}
	}
}

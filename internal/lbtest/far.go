package lbtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// farSegments is the length of a path through two domains.
	farSegments = 8
	// farBacklog is how many events a stream may be behind.
	farBacklog = 64
	// farLifetime is that of the tokens behind the far side: the shipped
	// NSM_MAX_TOKEN_LIFETIME.
	farLifetime = 10 * time.Minute
)

// Far is the next hop of every path with all that is behind it, for thousands of
// connections. It answers at once, reports each Request as the SDK's servers do, and
// finds its streams by the id of who subscribed: it has to stay cheaper than what is
// measured. It notes nothing else and has none of Peer's faults.
type Far struct {
	// mu guards all following fields.
	mu      sync.Mutex
	conns   map[string]*networkservice.Connection // by the id of the segment before ours
	streams map[string]*farStream                 // likewise
	opened  []time.Time
	serial  int
}

type farStream struct {
	events chan *networkservice.ConnectionEvent
}

// NewFar makes a far side without connections.
func NewFar() *Far {
	return &Far{conns: make(map[string]*networkservice.Connection), streams: make(map[string]*farStream)}
}

// Register adds the far side and a health service to a gRPC server.
func (f *Far) Register(s *grpc.Server) {
	networkservice.RegisterNetworkServiceServer(s, f)
	networkservice.RegisterMonitorConnectionServer(s, f)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
}

// Request implements networkservice.NetworkServiceServer.
func (f *Far) Request(_ context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	answer := request.GetConnection()
	f.mu.Lock()
	defer f.mu.Unlock()
	path := answer.GetPath()
	index := int(path.GetIndex())
	for i := index + 1; i < farSegments; i++ {
		if i == len(path.PathSegments) {
			f.serial++
			path.PathSegments = append(path.PathSegments, &networkservice.PathSegment{
				Id: fmt.Sprintf("00000000-0000-0000-%04d-%012d", i, f.serial), Name: fmt.Sprintf("far-%d", i),
			})
		}
		path.PathSegments[i].Token, path.PathSegments[i].Expires = Token, timestamppb.New(time.Now().Add(farLifetime))
	}
	if answer.Mechanism == nil && len(request.GetMechanismPreferences()) > 0 {
		answer.Mechanism = request.GetMechanismPreferences()[0]
	}
	answer.State = networkservice.State_UP
	answer.Context = farContext()
	own := answer.Clone()
	own.Path.Index = uint32(index + 1)
	own.Id = own.GetCurrentPathSegment().GetId()
	before := answer.GetCurrentPathSegment().GetId()
	f.conns[before] = own
	f.report(networkservice.ConnectionEventType_UPDATE, before, own)
	return answer, nil
}

// farContext is what the endpoints give.
func farContext() *networkservice.ConnectionContext {
	return &networkservice.ConnectionContext{IpContext: &networkservice.IPContext{
		SrcIpAddrs: []string{"172.16.0.2/32"},
		DstIpAddrs: []string{"172.16.0.3/32"},
		SrcRoutes:  []*networkservice.Route{{Prefix: "172.16.0.3/32"}},
		DstRoutes:  []*networkservice.Route{{Prefix: "172.16.0.2/32"}},
	}}
}

// Close implements networkservice.NetworkServiceServer.
func (f *Far) Close(_ context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := conn.GetCurrentPathSegment().GetId()
	if own, ok := f.conns[before]; ok {
		delete(f.conns, before)
		f.report(networkservice.ConnectionEventType_DELETE, before, own)
	}
	return new(emptypb.Empty), nil
}

// report puts an event before who has subscribed. The caller holds mu; what the
// event holds is never changed again.
func (f *Far) report(kind networkservice.ConnectionEventType, before string, conn *networkservice.Connection) {
	s, ok := f.streams[before]
	if !ok {
		return
	}
	select {
	case s.events <- farEvent(kind, conn):
	default:
	}
}

func farEvent(kind networkservice.ConnectionEventType, conn *networkservice.Connection) *networkservice.ConnectionEvent {
	e := &networkservice.ConnectionEvent{Type: kind}
	if conn != nil {
		e.Connections = map[string]*networkservice.Connection{conn.GetId(): conn}
	}
	return e
}

// MonitorConnections implements networkservice.MonitorConnectionServer.
func (f *Far) MonitorConnections(selector *networkservice.MonitorScopeSelector, stream networkservice.MonitorConnection_MonitorConnectionsServer) error {
	var before string
	if chosen := selector.GetPathSegments(); len(chosen) > 0 {
		before = chosen[len(chosen)-1].GetId()
	}
	s := &farStream{events: make(chan *networkservice.ConnectionEvent, farBacklog)}
	f.mu.Lock()
	f.streams[before] = s
	f.opened = append(f.opened, time.Now())
	next := farEvent(networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, f.conns[before])
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.streams[before] == s {
			delete(f.streams, before)
		}
	}()
	for {
		if err := stream.Send(next); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case next = <-s.events:
		}
	}
}

// Die reports that the endpoint behind a connection is gone. The connection is named
// by the id of the segment before the far side's.
func (f *Far) Die(before string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	conn := f.conns[before].Clone()
	conn.State = networkservice.State_DOWN
	f.report(networkservice.ConnectionEventType_UPDATE, before, conn)
}

// Streams returns how many monitor streams are open, and how many were opened.
func (f *Far) Streams() (open, opened int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams), len(f.opened)
}

// OpenedAfter returns when streams were opened since then, in order.
func (f *Far) OpenedAfter(then time.Time) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.opened), func(at time.Time) bool { return at.Before(then) })
}

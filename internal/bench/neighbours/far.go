package neighbours

import (
	"context"
	"fmt"
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
	// segments is the length of a path through two domains.
	segments = 8
	// backlog is how many events a stream may be behind.
	backlog = 64
)

// far is the next hop of every path with all that is behind it. It answers at
// once, reports each Request as the SDK's servers do, and finds its streams by
// the id of who subscribed: with ten thousand of them it has to stay cheaper
// than what is measured.
type far struct {
	token string // of a real one's length

	// mu guards all following fields.
	mu      sync.Mutex
	conns   map[string]*networkservice.Connection // by the id of the segment before ours
	streams map[string]*subscription              // likewise
	serial  int
}

type subscription struct {
	events chan *networkservice.ConnectionEvent
}

func newFar(token string) *far {
	return &far{token: token, conns: make(map[string]*networkservice.Connection), streams: make(map[string]*subscription)}
}

func (f *far) register(s *grpc.Server) {
	networkservice.RegisterNetworkServiceServer(s, f)
	networkservice.RegisterMonitorConnectionServer(s, f)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
}

// Request implements networkservice.NetworkServiceServer.
func (f *far) Request(_ context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	answer := request.GetConnection()
	f.mu.Lock()
	defer f.mu.Unlock()
	path := answer.GetPath()
	index := int(path.GetIndex())
	for i := index + 1; i < segments; i++ {
		if i == len(path.PathSegments) {
			f.serial++
			path.PathSegments = append(path.PathSegments, &networkservice.PathSegment{
				Id: fmt.Sprintf("00000000-0000-0000-%04d-%012d", i, f.serial), Name: fmt.Sprintf("far-%d", i),
			})
		}
		path.PathSegments[i].Token, path.PathSegments[i].Expires = f.token, timestamppb.New(time.Now().Add(tokenLifetime))
	}
	if answer.Mechanism == nil && len(request.GetMechanismPreferences()) > 0 {
		answer.Mechanism = request.GetMechanismPreferences()[0]
	}
	answer.State = networkservice.State_UP
	answer.Context = &networkservice.ConnectionContext{IpContext: &networkservice.IPContext{
		SrcIpAddrs: []string{"172.16.0.2/32"},
		DstIpAddrs: []string{"172.16.0.3/32"},
		SrcRoutes:  []*networkservice.Route{{Prefix: "172.16.0.3/32"}},
		DstRoutes:  []*networkservice.Route{{Prefix: "172.16.0.2/32"}},
	}}
	own := answer.Clone()
	own.Path.Index = uint32(index + 1)
	own.Id = own.GetCurrentPathSegment().GetId()
	before := answer.GetCurrentPathSegment().GetId()
	f.conns[before] = own
	f.report(networkservice.ConnectionEventType_UPDATE, before, own)
	return answer, nil
}

// Close implements networkservice.NetworkServiceServer.
func (f *far) Close(_ context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
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
func (f *far) report(kind networkservice.ConnectionEventType, before string, conn *networkservice.Connection) {
	s, ok := f.streams[before]
	if !ok {
		return
	}
	select {
	case s.events <- event(kind, conn):
	default:
	}
}

func event(kind networkservice.ConnectionEventType, conn *networkservice.Connection) *networkservice.ConnectionEvent {
	e := &networkservice.ConnectionEvent{Type: kind}
	if conn != nil {
		e.Connections = map[string]*networkservice.Connection{conn.GetId(): conn}
	}
	return e
}

// MonitorConnections implements networkservice.MonitorConnectionServer.
func (f *far) MonitorConnections(selector *networkservice.MonitorScopeSelector, stream networkservice.MonitorConnection_MonitorConnectionsServer) error {
	var before string
	if chosen := selector.GetPathSegments(); len(chosen) > 0 {
		before = chosen[len(chosen)-1].GetId()
	}
	s := &subscription{events: make(chan *networkservice.ConnectionEvent, backlog)}
	f.mu.Lock()
	f.streams[before] = s
	next := event(networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, f.conns[before])
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

package mixed

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// indexed is a far side for thousands of connections. It answers as lbtest.Peer
// does, but finds who watches a connection without looking at all of them: what is
// measured is to be the proxy.
type indexed struct {
	*lbtest.Peer

	mu sync.Mutex
	// All following fields are guarded by mu. The keys are the ids of the segment
	// before the far side's.
	conns   map[string]*networkservice.Connection
	streams map[string]chan *networkservice.ConnectionEvent
	opened  []time.Time
}

func newIndexed() *indexed {
	return &indexed{
		Peer:    lbtest.NewPeer("far"),
		conns:   make(map[string]*networkservice.Connection),
		streams: make(map[string]chan *networkservice.ConnectionEvent),
	}
}

// Register adds the far side and a health service to a gRPC server.
func (f *indexed) Register(s *grpc.Server) {
	networkservice.RegisterNetworkServiceServer(s, f)
	networkservice.RegisterMonitorConnectionServer(s, f)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
}

// Request implements networkservice.NetworkServiceServer.
func (f *indexed) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	answer, err := f.Peer.Request(ctx, request)
	if err != nil {
		return nil, err
	}
	own := answer.Clone()
	own.Path.Index++
	own.Id = own.GetCurrentPathSegment().GetId()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[answer.GetId()] = own
	if stream, ok := f.streams[answer.GetId()]; ok {
		stream <- eventOf(networkservice.ConnectionEventType_UPDATE, own)
	}
	return answer, nil
}

// MonitorConnections implements networkservice.MonitorConnectionServer.
func (f *indexed) MonitorConnections(selector *networkservice.MonitorScopeSelector, stream networkservice.MonitorConnection_MonitorConnectionsServer) error {
	id := selector.GetPathSegments()[0].GetId()
	events := make(chan *networkservice.ConnectionEvent, 64)
	f.mu.Lock()
	events <- eventOf(networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, f.conns[id])
	f.streams[id] = events
	f.opened = append(f.opened, time.Now())
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.streams[id] == events {
			delete(f.streams, id)
		}
	}()
	for {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case event := <-events:
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

// die reports that the endpoint behind a connection is gone.
func (f *indexed) die(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	conn := f.conns[id].Clone()
	conn.State = networkservice.State_DOWN
	if stream, ok := f.streams[id]; ok {
		stream <- eventOf(networkservice.ConnectionEventType_UPDATE, conn)
	}
}

func eventOf(kind networkservice.ConnectionEventType, conn *networkservice.Connection) *networkservice.ConnectionEvent {
	event := &networkservice.ConnectionEvent{Type: kind, Connections: make(map[string]*networkservice.Connection)}
	if conn != nil {
		event.Connections[conn.GetId()] = conn.Clone()
	}
	return event
}

// watched returns how many connections are watched.
func (f *indexed) watched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams)
}

// openedAfter returns when streams were opened since then, in order.
func (f *indexed) openedAfter(then time.Time) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.opened), func(at time.Time) bool { return at.Before(then) })
}

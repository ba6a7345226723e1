package lbtest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Peer is a far side on request: the next hop of a path, with an endpoint of its
// own behind it, whose every word can be chosen. By itself it behaves as the
// SDK's servers do: each good Request is reported by an UPDATE, before the answer
// or after it, each Close by a DELETE, and each stream begins with an initial
// state.
type Peer struct {
	name string

	// mu guards all following fields.
	mu       sync.Mutex
	conns    map[string]*networkservice.Connection // by their own id
	streams  map[*peerStream]struct{}
	requests []*networkservice.NetworkServiceRequest
	closes   []*networkservice.Connection
	opened   int
	serial   int
	faults   Faults
}

// Faults are what a peer does wrong. The zero value does nothing wrong.
type Faults struct {
	// RequestError is answered to every Request.
	RequestError error
	// RequestDelay comes before the answer, and before the report of it.
	RequestDelay time.Duration
	// ReportFirst sends the UPDATE of a Request before the delay instead of with
	// the answer.
	ReportFirst bool
	// Expires is when all tokens of the far side run out, as where a certificate
	// caps them. Zero gives each the usual lifetime.
	Expires time.Time
	// MonitorError ends every new stream before its initial state.
	MonitorError error
	// MonitorSilent opens streams and never says anything on them.
	MonitorSilent bool
	// MonitorOnce ends every stream right after its initial state.
	MonitorOnce bool
	// MonitorEnds ends every new stream before its initial state, without an
	// error: the peer reads EOF.
	MonitorEnds bool
	// MonitorDelay comes before the initial state, which was taken when the stream
	// was opened, and so before all that follows it.
	MonitorDelay time.Duration
}

type peerStream struct {
	selector *networkservice.MonitorScopeSelector
	events   chan *networkservice.ConnectionEvent
}

// NewPeer makes a far side whose path segment has that name.
func NewPeer(name string) *Peer {
	return &Peer{
		name:    name,
		conns:   make(map[string]*networkservice.Connection),
		streams: make(map[*peerStream]struct{}),
	}
}

// Register adds the peer and a health service to a gRPC server.
func (p *Peer) Register(s *grpc.Server) {
	networkservice.RegisterNetworkServiceServer(s, p)
	networkservice.RegisterMonitorConnectionServer(s, p)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
}

// Set replaces the faults.
func (p *Peer) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// Request implements networkservice.NetworkServiceServer.
func (p *Peer) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	p.mu.Lock()
	p.requests = append(p.requests, request.Clone())
	faults := p.faults
	if faults.RequestError != nil {
		p.mu.Unlock()
		return nil, faults.RequestError
	}
	conn, answer := p.establish(ctx, request.GetConnection())
	if faults.ReportFirst {
		p.report(networkservice.ConnectionEventType_UPDATE, conn)
	}
	p.mu.Unlock()
	select {
	case <-time.After(faults.RequestDelay):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if !faults.ReportFirst {
		p.mu.Lock()
		conn.State = networkservice.State_UP
		p.report(networkservice.ConnectionEventType_UPDATE, conn)
		p.mu.Unlock()
	}
	return answer, nil
}

// establish makes or renews the connection: as the peer itself keeps it, and as
// it is answered to the hop before it. The caller holds mu.
func (p *Peer) establish(ctx context.Context, conn *networkservice.Connection) (own, answer *networkservice.Connection) {
	p.serial++
	expires := p.faults.Expires
	if expires.IsZero() {
		expires = time.Now().Add(10 * time.Minute)
	}
	own = conn.Clone()
	index := int(own.GetPath().GetIndex())
	if tok, until, err := token.FromContext(ctx); err == nil {
		own.Path.PathSegments[index].Token, own.Path.PathSegments[index].Expires = tok, timestamppb.New(until)
	}
	for i := index + 1; i <= index+2; i++ {
		if i == len(own.Path.PathSegments) {
			own.Path.PathSegments = append(own.Path.PathSegments, &networkservice.PathSegment{Id: fmt.Sprintf("%s-%d-%d", p.name, i, p.serial)})
		}
		segment := own.Path.PathSegments[i]
		segment.Name = fmt.Sprintf("%s-%d", p.name, i)
		segment.Token = fmt.Sprintf("far.token.%d", p.serial)
		segment.Expires = timestamppb.New(expires)
	}
	own.Path.Index = uint32(index + 1)
	own.Id = own.Path.PathSegments[index+1].Id
	own.State = networkservice.State_UP
	if own.Context.GetIpContext() == nil {
		own.Context = &networkservice.ConnectionContext{IpContext: &networkservice.IPContext{SrcIpAddrs: []string{"172.16.0.2/32"}}}
	}
	p.conns[own.Id] = own
	answer = own.Clone()
	answer.Path.Index = uint32(index)
	answer.Id = answer.Path.PathSegments[index].Id
	return own, answer
}

// Close implements networkservice.NetworkServiceServer.
func (p *Peer) Close(_ context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closes = append(p.closes, conn.Clone())
	if own, ok := p.conns[conn.GetNextPathSegment().GetId()]; ok {
		delete(p.conns, own.GetId())
		p.report(networkservice.ConnectionEventType_DELETE, own)
	}
	return new(emptypb.Empty), nil
}

// MonitorConnections implements networkservice.MonitorConnectionServer.
func (p *Peer) MonitorConnections(selector *networkservice.MonitorScopeSelector, stream networkservice.MonitorConnection_MonitorConnectionsServer) error {
	p.mu.Lock()
	p.opened++
	faults := p.faults
	if faults.MonitorError != nil || faults.MonitorEnds {
		p.mu.Unlock()
		return faults.MonitorError
	}
	s := &peerStream{selector: selector, events: make(chan *networkservice.ConnectionEvent, 64)}
	if !faults.MonitorSilent {
		p.streams[s] = struct{}{}
		s.events <- &networkservice.ConnectionEvent{
			Type:        networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER,
			Connections: cloneAll(networkservice.FilterMapOnManagerScopeSelector(p.conns, selector)),
		}
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.streams, s)
	}()
	select {
	case <-time.After(faults.MonitorDelay):
	case <-stream.Context().Done():
	}
	for {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case event, ok := <-s.events:
			if !ok {
				return status.Error(codes.Unavailable, "stream ended on request")
			}
			if err := stream.Send(event); err != nil {
				return err
			}
			if faults.MonitorOnce {
				return nil
			}
		}
	}
}

// report sends an event of a connection to whoever has asked for it. The caller
// holds mu.
func (p *Peer) report(kind networkservice.ConnectionEventType, conn *networkservice.Connection) {
	// The hop before asks for its own segment alone: most streams are told apart
	// by that, without trying each on the whole path.
	before := conn.GetPrevPathSegment().GetId()
	for s := range p.streams {
		if one := s.selector.GetPathSegments(); len(one) == 1 && one[0].GetId() != "" && one[0].GetId() != before {
			continue
		}
		if conn.MatchesMonitorScopeSelector(s.selector) {
			s.events <- &networkservice.ConnectionEvent{
				Type:        kind,
				Connections: map[string]*networkservice.Connection{conn.GetId(): conn.Clone()},
			}
		}
	}
}

// Say changes every connection by f and reports it with an UPDATE.
func (p *Peer) Say(f func(*networkservice.Connection)) { p.SayIf(all, f) }

// SayIf does the same for those that which holds for.
func (p *Peer) SayIf(which func(*networkservice.Connection) bool, f func(*networkservice.Connection)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		if which(conn) {
			f(conn)
			p.report(networkservice.ConnectionEventType_UPDATE, conn)
		}
	}
}

func all(*networkservice.Connection) bool { return true }

// Think changes every connection by f and says nothing.
func (p *Peer) Think(f func(*networkservice.Connection)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		f(conn)
	}
}

// Delete drops every connection and reports it.
func (p *Peer) Delete() { p.DeleteIf(all) }

// DeleteIf does the same for those that which holds for.
func (p *Peer) DeleteIf(which func(*networkservice.Connection) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, conn := range p.conns {
		if which(conn) {
			delete(p.conns, id)
			p.report(networkservice.ConnectionEventType_DELETE, conn)
		}
	}
}

// Forget drops every connection without a word.
func (p *Peer) Forget() { p.ForgetIf(all) }

// ForgetIf does the same for those that which holds for.
func (p *Peer) ForgetIf(which func(*networkservice.Connection) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.conns, func(_ string, conn *networkservice.Connection) bool { return which(conn) })
}

// EndStreams ends every monitor stream, connections staying up.
func (p *Peer) EndStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.streams {
		delete(p.streams, s)
		close(s.events)
	}
}

// Requests returns copies of what has been requested so far.
func (p *Peer) Requests() []*networkservice.NetworkServiceRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*networkservice.NetworkServiceRequest(nil), p.requests...)
}

// Closes returns copies of what has been closed so far.
func (p *Peer) Closes() []*networkservice.Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*networkservice.Connection(nil), p.closes...)
}

// Conns returns copies of the connections that the peer holds.
func (p *Peer) Conns() map[string]*networkservice.Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cloneAll(p.conns)
}

// Streams returns how many monitor streams are open, and how many were opened.
func (p *Peer) Streams() (open, opened int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.streams), p.opened
}

func cloneAll(conns map[string]*networkservice.Connection) map[string]*networkservice.Connection {
	clones := make(map[string]*networkservice.Connection, len(conns))
	for id, conn := range conns {
		clones[id] = proto.CloneOf(conn)
	}
	return clones
}

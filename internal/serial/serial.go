// Package serial lets the registrations of one endpoint through one by one.
//
// What is promised: calls for one name go on in the order in which they came,
// each when the one before has returned; calls for different names do not wait
// for each other. A call whose context ends while it waits ends with that, and
// the others keep their places. A name is known for as long as a call for it is
// here, and nothing is known of a call that has returned. Searches do not wait.
//
// It does that much of the SDK's begin that a chain without events needs. That
// one keeps each endpoint until it is unregistered, with the context of its last
// call, and through it the connection which that came over.
package serial

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

type server struct {
	// mu guards all following fields.
	mu sync.Mutex
	// waiting holds the names in use, each with the turns of those who wait for
	// it, as chan struct{} in the order of their arrival.
	waiting map[string]*list.List
}

// NewNetworkServiceEndpointRegistryServer is the element behind which there is
// one Register or Unregister of an endpoint at a time.
func NewNetworkServiceEndpointRegistryServer() registry.NetworkServiceEndpointRegistryServer {
	return &server{waiting: make(map[string]*list.List)}
}

func (s *server) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	name := nse.GetName() // the elements behind change what they are given
	if err := s.enter(ctx, name); err != nil {
		return nil, err
	}
	defer s.leave(name)
	return next.NetworkServiceEndpointRegistryServer(ctx).Register(ctx, nse)
}

func (s *server) Find(query *registry.NetworkServiceEndpointQuery, found registry.NetworkServiceEndpointRegistry_FindServer) error {
	return next.NetworkServiceEndpointRegistryServer(found.Context()).Find(query, found)
}

func (s *server) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	name := nse.GetName()
	if err := s.enter(ctx, name); err != nil {
		return nil, err
	}
	defer s.leave(name)
	return next.NetworkServiceEndpointRegistryServer(ctx).Unregister(ctx, nse)
}

// enter returns when it is the call's turn. Without an error leave has to follow.
func (s *server) enter(ctx context.Context, name string) error {
	turn, place := s.queue(name)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	s.giveUp(name, turn, place)
	err := status.FromContextError(ctx.Err())
	return status.Error(err.Code(), fmt.Sprintf("serial: waiting for another call for %s: %s", name, err.Message()))
}

// queue takes the name, or a place behind those who wait for it.
func (s *server) queue(name string) (turn chan struct{}, place *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turns, taken := s.waiting[name]
	if !taken {
		s.waiting[name] = list.New()
		return nil, nil
	}
	turn = make(chan struct{})
	return turn, turns.PushBack(turn)
}

// giveUp leaves the place in the queue, or the turn that came in the meantime.
func (s *server) giveUp(name string, turn chan struct{}, place *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-turn:
		s.pass(name)
	default:
		s.waiting[name].Remove(place)
	}
}

func (s *server) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(name)
}

// pass gives the name to who is next, and forgets it if nobody is. It is called
// with mu held.
func (s *server) pass(name string) {
	turns := s.waiting[name]
	first := turns.Front()
	if first == nil {
		delete(s.waiting, name)
		return
	}
	if turn, ok := turns.Remove(first).(chan struct{}); ok {
		close(turn)
	}
}

// Package authz authorizes Requests, Closes and subscriptions by the SDK's OPA
// policies. Both are off unless the operator names policies: turned on, they need
// neighbours that send tokens, and subscribers that requested what they watch.
//
// It stands where the SDK has its authorize elements. Those forget every
// connection of a peer when one of its Requests fails, so that its other
// connections can no longer be watched; here a failed Request changes nothing.
// And they hand each subscription the ids of all peers; here it is the
// subscriber's own.
//
// What is promised: a connection belongs to the peer whose Request was answered
// last, until it is closed or its tokens run out. After a restart nobody owns
// anything: subscribers are refused until they have refreshed.
package authz

import (
	"context"
	"fmt"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	monitornext "github.com/networkservicemesh/sdk/pkg/tools/monitorconnection/next"
	"github.com/networkservicemesh/sdk/pkg/tools/opa"
	"github.com/networkservicemesh/sdk/pkg/tools/spire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Policy is one OPA policy.
type Policy interface {
	Name() string
	// Check returns PermissionDenied if the policy says no to the input.
	Check(ctx context.Context, input any) error
}

// Load reads the policies that the masks name, as the SDK does: files, or those
// that come with it.
func Load(masks []string) ([]Policy, error) {
	var policies []Policy
	for _, mask := range masks {
		found, err := opa.PoliciesByFileMask(mask)
		if err != nil {
			return nil, fmt.Errorf("authz: policies %q: %w", mask, err)
		}
		for _, policy := range found {
			policies = append(policies, policy)
		}
	}
	return policies, nil
}

func check(ctx context.Context, policies []Policy, input any) error {
	for _, policy := range policies {
		if err := policy.Check(ctx, input); err != nil {
			return fmt.Errorf("authz: policy %s: %w", policy.Name(), err)
		}
	}
	return nil
}

// Owners knows whose each connection is.
type Owners struct {
	mu  sync.Mutex
	ids map[string]map[string]struct{} // by SPIFFE ID; guarded by mu
}

// NewOwners makes the record that a server and its monitor server share.
func NewOwners() *Owners { return &Owners{ids: make(map[string]map[string]struct{})} }

func (o *Owners) add(peer, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ids[peer] == nil {
		o.ids[peer] = make(map[string]struct{})
	}
	o.ids[peer][id] = struct{}{}
}

func (o *Owners) remove(peer, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.ids[peer], id)
	if len(o.ids[peer]) == 0 {
		delete(o.ids, peer)
	}
}

func (o *Owners) of(peer string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	ids := make([]string, 0, len(o.ids[peer]))
	for id := range o.ids[peer] {
		ids = append(ids, id)
	}
	return ids
}

// peerOf returns the caller's SPIFFE ID, empty where it has none.
func peerOf(ctx context.Context) string {
	id, err := spire.PeerSpiffeIDFromContext(ctx)
	if err != nil {
		return ""
	}
	return id.String()
}

type server struct {
	policies []Policy
	owners   *Owners
}

// NewServer is the element that authorizes Request and Close by the path up to
// this proxy.
func NewServer(policies []Policy, owners *Owners) networkservice.NetworkServiceServer {
	return &server{policies: policies, owners: owners}
}

func (s *server) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	if err := check(ctx, s.policies, upTo(request.GetConnection())); err != nil {
		return nil, err
	}
	before := request.GetConnection().GetPrevPathSegment().GetId()
	conn, err := next.Server(ctx).Request(ctx, request)
	if err == nil && before != "" {
		s.owners.add(peerOf(ctx), before)
	}
	return conn, err
}

func (s *server) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	if err := check(ctx, s.policies, upTo(conn)); err != nil {
		return nil, err
	}
	s.owners.remove(peerOf(ctx), conn.GetPrevPathSegment().GetId())
	return next.Server(ctx).Close(ctx, conn)
}

// upTo is the path as far as it has been walked: what comes behind is not the
// caller's to vouch for.
func upTo(conn *networkservice.Connection) *networkservice.Path {
	path := conn.GetPath()
	return &networkservice.Path{Index: path.GetIndex(), PathSegments: path.GetPathSegments()[:path.GetIndex()+1]}
}

type monitorServer struct {
	policies []Policy
	owners   *Owners
}

// NewMonitorConnectionServer is the element that authorizes subscriptions by what
// the subscriber has requested.
func NewMonitorConnectionServer(policies []Policy, owners *Owners) networkservice.MonitorConnectionServer {
	return &monitorServer{policies: policies, owners: owners}
}

// subscription is the input of a monitor policy, with the names that the SDK's
// policies know.
type subscription struct {
	IDs      map[string][]string `json:"spiffe_id_connection_map"`
	Selected []string            `json:"selector_connection_ids"`
	Peer     string              `json:"service_spiffe_id"`
}

func (m *monitorServer) MonitorConnections(selector *networkservice.MonitorScopeSelector, stream networkservice.MonitorConnection_MonitorConnectionsServer) error {
	ctx := stream.Context()
	peer := peerOf(ctx)
	input := subscription{IDs: map[string][]string{peer: m.owners.of(peer)}, Selected: []string{}, Peer: peer}
	for _, segment := range selector.GetPathSegments() {
		input.Selected = append(input.Selected, segment.GetId())
	}
	if err := check(ctx, m.policies, input); err != nil {
		return err
	}
	return monitornext.MonitorConnectionServer(ctx).MonitorConnections(selector, stream)
}

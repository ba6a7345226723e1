// Package authz authorizes Requests, Closes, subscriptions and registry calls by the
// SDK's OPA policies. All but the last are off unless the operator names policies: turned
// on, they need neighbours that send tokens, and subscribers that requested what they
// watch.
//
// It stands where the SDK has its authorize elements. For Requests, those forget every
// connection of a peer when one of its Requests fails, so that its other
// connections can no longer be watched; here a failed Request changes nothing.
// And they hand each subscription the ids of all peers; here it is the
// subscriber's own.
//
// What is promised: a connection belongs to the peer whose Request was answered
// last, until it is closed or its tokens run out. After a restart nobody owns
// anything: subscribers are refused until they have refreshed.
//
// For registry calls, the SDK's keep the name and the path ids of all that was ever
// registered and not unregistered, and hand each call a copy of all of it. Here a
// policy gets what is known of the name in question, which is all that the SDK's own look
// at, and they decide the same: a name belongs to who registered it first, until it is
// unregistered. But it is free also when its registration has expired, and when the peer
// through which it came has registered some thousands of others since. As in the SDK
// nothing is known after a restart.
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
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
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

// Owners knows whose each connection is, if there is a policy that asks.
type Owners struct {
	policies []Policy

	mu    sync.Mutex
	owned map[string]owner               // by connection; guarded by mu
	ids   map[string]map[string]struct{} // connections by SPIFFE ID; guarded by mu
}

// owner is the peer whose connection it is, and the leg that it goes on with.
type owner struct {
	peer string
	leg  *leg.Leg
}

// NewOwners makes the record that a server and its monitor server share.
func NewOwners(policies []Policy) *Owners {
	return &Owners{policies: policies, owned: make(map[string]owner), ids: make(map[string]map[string]struct{})}
}

func (o *Owners) set(id, peer string, l *leg.Leg) {
	if len(o.policies) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(id)
	o.owned[id] = owner{peer: peer, leg: l}
	if o.ids[peer] == nil {
		o.ids[peer] = make(map[string]struct{})
	}
	o.ids[peer][id] = struct{}{}
}

// remove forgets a connection at the end of its leg, unless another leg has taken it
// over.
func (o *Owners) remove(id string, l *leg.Leg) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owned[id].leg == l {
		o.drop(id)
	}
}

// drop is called with mu held.
func (o *Owners) drop(id string) {
	owner, ok := o.owned[id]
	if !ok {
		return
	}
	delete(o.owned, id)
	delete(o.ids[owner.peer], id)
	if len(o.ids[owner.peer]) == 0 {
		delete(o.ids, owner.peer)
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

type gate struct {
	policies []Policy
	tokens   token.GeneratorFunc
}

// NewGate is the element that authorizes Request and Close by the path up to this
// proxy. It stands in front of everything that acts on them: a reselect closes the
// old leg first, and must not for somebody who may not.
//
// The policies see the path as it will be sent on: with the caller's token as it
// came with the call, and with one of our own.
func NewGate(policies []Policy, tokens token.GeneratorFunc) networkservice.NetworkServiceServer {
	return &gate{policies: policies, tokens: tokens}
}

func (g *gate) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	if err := g.authorize(ctx, request.GetConnection()); err != nil {
		return nil, err
	}
	return next.Server(ctx).Request(ctx, request)
}

func (g *gate) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	if err := g.authorize(ctx, conn); err != nil {
		return nil, err
	}
	return next.Server(ctx).Close(ctx, conn)
}

func (g *gate) authorize(ctx context.Context, conn *networkservice.Connection) error {
	if len(g.policies) == 0 {
		return nil
	}
	// What comes behind us is not the caller's to vouch for.
	path := proto.CloneOf(conn.GetPath())
	path.PathSegments = path.GetPathSegments()[:path.GetIndex()+1]
	if own := int(path.GetIndex()); own > 0 {
		if tok, _, err := token.FromContext(ctx); err == nil {
			path.PathSegments[own-1].Token = tok
		}
	}
	var peerInfo credentials.AuthInfo
	if p, ok := peer.FromContext(ctx); ok {
		peerInfo = p.AuthInfo
	}
	tok, _, err := g.tokens(peerInfo)
	if err != nil {
		return fmt.Errorf("authz: own token: %w", err)
	}
	path.PathSegments[path.GetIndex()].Token = tok
	return check(ctx, g.policies, path)
}

type ownership struct{ owners *Owners }

// known is under what id the hop before us knows the current leg.
type known string

// NewServer is the element that notes whose each connection is.
func NewServer(owners *Owners) networkservice.NetworkServiceServer {
	return &ownership{owners: owners}
}

func (o *ownership) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	before := request.GetConnection().GetPrevPathSegment().GetId()
	conn, err := next.Server(ctx).Request(ctx, request)
	if err != nil || before == "" {
		return conn, err
	}
	l, last := leg.FromContext(ctx), leg.State[known](ctx)
	if *last != known(before) {
		o.owners.remove(string(*last), l) // it comes another way by now
	}
	*last = known(before)
	o.owners.set(before, peerOf(ctx), l)
	return conn, nil
}

func (o *ownership) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	o.owners.remove(conn.GetPrevPathSegment().GetId(), leg.FromContext(ctx))
	return next.Server(ctx).Close(ctx, conn)
}

type monitorServer struct{ owners *Owners }

// NewMonitorConnectionServer is the element that authorizes subscriptions by what
// the subscriber has requested.
func NewMonitorConnectionServer(owners *Owners) networkservice.MonitorConnectionServer {
	return &monitorServer{owners: owners}
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
	if len(m.owners.policies) == 0 {
		return monitornext.MonitorConnectionServer(ctx).MonitorConnections(selector, stream)
	}
	id := peerOf(ctx)
	input := subscription{IDs: map[string][]string{id: m.owners.of(id)}, Selected: []string{}, Peer: id}
	for _, segment := range selector.GetPathSegments() {
		input.Selected = append(input.Selected, segment.GetId())
	}
	if err := check(ctx, m.owners.policies, input); err != nil {
		return err
	}
	return monitornext.MonitorConnectionServer(ctx).MonitorConnections(selector, stream)
}

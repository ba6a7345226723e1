package authz

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v4"
	"github.com/networkservicemesh/sdk/pkg/registry/common/authorize"
	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	// peerRoom is how much is remembered of what came through one peer, in bytes. That
	// is the registry of the domain for all of its endpoints: six thousand of them with
	// names and ids as SPIRE makes them. More than that pushes out what is oldest.
	peerRoom = 4 << 20
	// entrySize is what an entry takes beside its strings, with its places in map and
	// list; idSize is that of one id's header.
	entrySize, idSize = 300, 16
	// sweepPause is between two looks for what has expired: each is at all there is.
	sweepPause = time.Minute
)

// registrations remembers who registered each name.
type registrations struct {
	// mu guards all following fields.
	mu    sync.Mutex
	known map[string]*registration
	peers map[string]*registrar
	swept time.Time
}

type registration struct {
	name    string
	ids     []string  // of the path that it was registered by, the owner first
	expires time.Time // zero for never
	through *registrar
	place   *list.Element // in the order of its registrar
}

// registrar is the peer that registrations came through.
type registrar struct {
	id    string
	order list.List // of *registration, the oldest first
	size  int
}

func newRegistrations() *registrations {
	return &registrations{known: make(map[string]*registration), peers: make(map[string]*registrar)}
}

// of returns the ids that belong to a name, under that name; nothing if it is not
// registered, or not any more.
func (r *registrations) of(name string) map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.known[name]; ok && !e.expired(time.Now()) {
		return map[string][]string{name: e.ids}
	}
	return map[string][]string{}
}

func (r *registrations) set(peer, name string, ids []string, expires time.Time) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(r.known[name])
	r.sweep(now)
	through := r.peers[peer]
	if through == nil {
		through = &registrar{id: peer}
		r.peers[peer] = through
	}
	e := &registration{name: name, ids: ids, expires: expires, through: through}
	e.place = through.order.PushBack(e)
	through.size += e.size()
	r.known[name] = e
	for through.size > peerRoom {
		oldest, _ := through.order.Front().Value.(*registration)
		r.drop(oldest)
	}
}

func (r *registrations) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(r.known[name])
}

// drop is called with mu held.
func (r *registrations) drop(e *registration) {
	if e == nil {
		return
	}
	delete(r.known, e.name)
	e.through.order.Remove(e.place)
	e.through.size -= e.size()
	if e.through.order.Len() == 0 {
		delete(r.peers, e.through.id)
	}
}

// sweep is called with mu held.
func (r *registrations) sweep(now time.Time) {
	if now.Sub(r.swept) < sweepPause {
		return
	}
	r.swept = now
	for _, e := range r.known {
		if e.expired(now) {
			r.drop(e)
		}
	}
}

func (e *registration) expired(now time.Time) bool {
	return !e.expires.IsZero() && !now.Before(e.expires)
}

func (e *registration) size() int {
	size := entrySize + len(e.name)
	for _, id := range e.ids {
		size += idSize + len(id)
	}
	return size
}

// names are what an element knows of the names of one registry.
type names struct {
	policies []Policy
	known    *registrations
}

func newNames(policies []Policy) names { return names{policies: policies, known: newRegistrations()} }

// off tells that there is no policy that asks.
func (n *names) off() bool { return len(n.policies) == 0 }

// keep remembers who has registered the name in the answer.
func (n *names) keep(ctx context.Context, answer resource) {
	if !n.off() {
		n.known.set(peerOf(ctx), answer.GetName(), answer.GetPathIds(), expiryOf(answer))
	}
}

// check asks the policies about a call for a name. They get what the SDK gives them, but
// of all that is registered the name in question alone.
func (n *names) check(ctx context.Context, name string, path *grpcmetadata.Path) error {
	return check(ctx, n.policies, authorize.RegistryOpaInput{
		ResourceID:         ownerOf(path),
		ResourceName:       name,
		ResourcePathIDsMap: n.known.of(name),
		PathSegments:       path.PathSegments,
		Index:              path.Index,
	})
}

// ownerOf is who a path says it begins with, empty where that is no SPIFFE ID. That the
// token is good is for the policies to say.
func ownerOf(path *grpcmetadata.Path) string {
	if len(path.PathSegments) == 0 {
		return ""
	}
	claims := new(jwt.RegisteredClaims)
	if _, _, err := jwt.NewParser().ParseUnverified(path.PathSegments[0].Token, claims); err != nil {
		return ""
	}
	id, err := spiffeid.FromString(claims.Subject)
	if err != nil {
		return ""
	}
	return id.String()
}

// upToUs is the part of a path that the caller vouches for.
func upToUs(path *grpcmetadata.Path) *grpcmetadata.Path {
	end := min(int(path.Index)+1, len(path.PathSegments))
	return &grpcmetadata.Path{Index: path.Index, PathSegments: path.PathSegments[:end:end]}
}

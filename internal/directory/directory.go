// Package directory knows where endpoints live and which way a request goes.
//
// Three ways are told apart: outbound to another domain, inbound to an endpoint
// of this one, and floating to an endpoint of this one that is registered under
// a name of a third. What passes through the registry side of the proxy is
// learned; what has not passed (after a restart, nothing has) is looked up: the
// bare name in the local registry, then the full name through the registry
// proxy.
//
// What is promised:
//
//   - A route that works is kept by its leg: a refresh looks nothing up.
//   - When a Request fails, the endpoint is looked up again, and the newest
//     answer wins: an address that moved is followed without a restart.
//   - A transport that fails is tried again until a second before the caller's
//     deadline; an error that the far side answered is tried again only if the
//     look-up says that the endpoint is elsewhere by now, and a refresh that was
//     refused once more.
//   - A path that leads on is not turned: a leg of another domain stays one, even
//     where this domain has an endpoint of the same bare name.
//   - A URL that leads back to this very process means inbound.
//   - What is learned is forgotten an hour after its last use, or when some
//     thousand others have been used since. That costs one look-up, so nothing
//     has to be kept for ever.
package directory

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/tools/interdomain"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Way is the direction of a request as seen from this proxy.
type Way int

// The ways. The zero value is no way at all.
const (
	// Outbound leads to the proxy of another domain; names stay as they are.
	Outbound Way = iota + 1
	// Inbound leads to a nsmgr of this domain, which knows bare names only.
	Inbound
	// Floating leads to a nsmgr of this domain, which knows the full name.
	Floating
)

func (w Way) String() string {
	switch w {
	case Outbound:
		return "outbound"
	case Inbound:
		return "inbound"
	case Floating:
		return "floating"
	}
	return "unknown"
}

// Route is where a request goes. Legs keep theirs.
type Route struct {
	Way Way
	URL *url.URL
	// Endpoint is the name the route was made for.
	Endpoint string
}

const (
	// keepFor is how long something learned outlives its last use. The SDK's
	// registrations expire within minutes; an hour is safely more.
	keepFor = time.Hour
	// lookupTimeout bounds one look-up, of two at most: both fit into the 15 s
	// that the SDK gives a caller's try, with time left for the Request.
	lookupTimeout = 4 * time.Second
	// moment is how long the answer to a look-up serves others who ask the same.
	// When a hop fails, all its legs ask at once.
	moment = time.Second
)

// Directory is shared by the request side and the registry side of the proxy.
type Directory struct {
	// Set once at construction.
	self  string
	local registry.NetworkServiceEndpointRegistryClient
	proxy registry.NetworkServiceEndpointRegistryClient

	// mu guards all following fields.
	mu sync.Mutex
	// found holds what the registries of other domains answered, registered
	// what endpoints of this domain registered in another.
	found, registered *recent[string, *url.URL]
	// answers holds the look-ups of the last moment.
	answers *recent[question, *url.URL]

	flight singleflight.Group
}

// New makes a directory for the proxy that is reached under self. The clients
// lead to the registry of this domain and to the proxy of the others.
func New(self *url.URL, local, proxy registry.NetworkServiceEndpointRegistryClient) *Directory {
	return &Directory{
		self:       self.String(),
		local:      local,
		proxy:      proxy,
		found:      newRecent[string, *url.URL](keepFor, maxNames),
		registered: newRecent[string, *url.URL](keepFor, maxNames),
		answers:    newRecent[question, *url.URL](moment, maxNames),
	}
}

// Resolve returns the way to an endpoint from what is known, or looks it up.
// Behind are the names that follow us on the path of a connection that was there
// before: it leads where it led, so its name is looked up in the other domains
// first, and in this one only if they are of this one. An endpoint that nobody knows
// is FailedPrecondition.
func (d *Directory) Resolve(ctx context.Context, endpoint string, behind []string) (Route, error) {
	if u := d.recall(d.registered, endpoint); u != nil {
		return Route{Way: Floating, URL: u, Endpoint: endpoint}, nil
	}
	if u := d.recall(d.found, endpoint); u != nil && u.String() != d.self {
		return Route{Way: Outbound, URL: u, Endpoint: endpoint}, nil
	}
	if len(behind) == 0 {
		return d.Lookup(ctx, endpoint, Inbound, Outbound)
	}
	u, err := d.ask(ctx, Outbound, endpoint)
	switch {
	case u != nil && u.String() != d.self:
		d.learn(d.found, endpoint, u)
		return Route{Way: Outbound, URL: u, Endpoint: endpoint}, nil
	case u != nil, !interdomain.Is(endpoint):
		return d.Inbound(ctx, endpoint, behind)
	}
	forwarder, askErr := d.forwarderBehind(ctx, behind)
	switch err = errors.Join(err, askErr); {
	case forwarder != nil:
		return d.Inbound(ctx, endpoint, behind)
	case err != nil:
		return Route{}, status.Errorf(codes.Unavailable, "directory: %s: %v", endpoint, err)
	default:
		return Route{}, status.Errorf(codes.FailedPrecondition, "directory: no endpoint %s", endpoint)
	}
}

// forwarderBehind returns where the forwarder that is behind us on a connection's
// path is reached, if it is of this domain: through its nsmgr, which is the
// endpoint's as well. Of an inbound connection it is the second, behind its nsmgr. Of
// an outbound one the second is a nsmgr, which is no endpoint anywhere: the two
// cannot be mistaken for each other.
func (d *Directory) forwarderBehind(ctx context.Context, behind []string) (*url.URL, error) {
	if len(behind) < 2 {
		return nil, nil
	}
	return d.ask(ctx, Inbound, behind[1])
}

// Again looks up where the endpoint of a route is by now. A route that led to
// another domain does not come to lead into this one because this one has an
// endpoint of the same bare name.
//
// A floating endpoint may have moved to another domain without a word to us: what
// that one's registry knows goes before what was registered here. Where the answer
// is this proxy under another address, the Request will tell (hop.ErrSelf).
func (d *Directory) Again(ctx context.Context, r Route) (Route, error) {
	if r.Way == Floating {
		if elsewhere, err := d.Lookup(ctx, r.Endpoint, Outbound); err == nil {
			return elsewhere, nil
		}
		return d.Inbound(ctx, r.Endpoint, nil)
	}
	return d.Lookup(ctx, r.Endpoint, r.Way)
}

// Inbound looks an endpoint up that turned out to be of this domain. One with a
// floating name is in no registry of this domain; after a restart only who follows
// us on its path leads to it: the forwarder there is registered under its own
// name, with the address of its nsmgr.
func (d *Directory) Inbound(ctx context.Context, endpoint string, behind []string) (Route, error) {
	if u := d.recall(d.registered, endpoint); u != nil {
		return Route{Way: Floating, URL: u, Endpoint: endpoint}, nil
	}
	route, err := d.Lookup(ctx, endpoint, Inbound)
	if err == nil {
		return route, nil
	}
	if u, _ := d.forwarderBehind(ctx, behind); u != nil {
		return Route{Way: Floating, URL: u, Endpoint: endpoint}, nil
	}
	return Route{}, err
}

// Lookup asks the registries on the given ways, in that order, whatever is known
// already. Those who ask for the same within a moment get the same answer.
func (d *Directory) Lookup(ctx context.Context, endpoint string, order ...Way) (Route, error) {
	var failed error
	for _, way := range order {
		u, err := d.ask(ctx, way, endpoint)
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case u != nil && u.String() != d.self:
			if way == Outbound {
				d.learn(d.found, endpoint, u)
			}
			return Route{Way: way, URL: u, Endpoint: endpoint}, nil
		}
	}
	if failed != nil {
		return Route{}, status.Errorf(codes.Unavailable, "directory: %s: %v", endpoint, failed)
	}
	return Route{}, status.Errorf(codes.FailedPrecondition, "directory: no endpoint %s", endpoint)
}

// recall counts as a use.
func (d *Directory) recall(names *recent[string, *url.URL], endpoint string) *url.URL {
	d.mu.Lock()
	defer d.mu.Unlock()
	u, ok := names.get(endpoint)
	if ok {
		names.put(endpoint, u)
	}
	return u
}

// learn takes the newest answer over the one before.
func (d *Directory) learn(names *recent[string, *url.URL], endpoint string, u *url.URL) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names.put(endpoint, u)
}

func (d *Directory) forget(names *recent[string, *url.URL], endpoint string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names.forget(endpoint)
}

package directory

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/interdomain"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/packed"
)

const (
	// patience is how long a Request without a deadline is tried again: what
	// the SDK gives a caller's try.
	patience = 15 * time.Second
	// margin is left of the caller's deadline, so that it gets the error and not
	// its own timeout.
	margin = time.Second
	// brief is how long a refresh that could be answered without the far side is
	// tried: what a balancer takes to pass on a connection again.
	brief = 3 * time.Second
	// firstPause and maxPause bound the pauses between tries.
	firstPause = 100 * time.Millisecond
	maxPause   = time.Second
)

type server struct{ directory *Directory }

// NewServer is the element that finds out where a Request goes: it puts the URL
// into the context, strips the domain from the names for an endpoint of this
// domain, and gives the answer the caller's names back.
func NewServer(d *Directory) networkservice.NetworkServiceServer { return &server{directory: d} }

// FromLeg returns the route of the current leg. Its way is zero before the
// first Request has succeeded.
func FromLeg(ctx context.Context) Route { return *leg.State[Route](ctx) }

// Moved returns what tells whether the current leg's endpoint is elsewhere by then,
// for whoever watches the leg and has lost it.
func (d *Directory) Moved(ctx context.Context) func(context.Context) bool {
	route := FromLeg(ctx)
	return func(ctx context.Context) bool {
		if route.Way == 0 {
			return false
		}
		_, moved := d.elsewhere(ctx, route)
		return moved
	}
}

// elsewhere looks the endpoint of a route up again. Unless that leads elsewhere, it
// returns the route as it was.
func (d *Directory) elsewhere(ctx context.Context, r Route) (Route, bool) {
	again, err := d.Again(ctx, r)
	if err != nil || again.URL.String() == r.URL.String() {
		return r, false
	}
	return again, true
}

func (s *server) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	endpoint := request.GetConnection().GetNetworkServiceEndpointName()
	behind := namesBehind(request.GetConnection())
	kept := leg.State[Route](ctx)
	route := *kept
	if route.Way == 0 || route.Endpoint != endpoint {
		var err error
		if route, err = s.directory.Resolve(ctx, endpoint, behind); err != nil {
			return nil, err
		}
	}
	began, end := time.Now(), deadline(ctx)
	given := copyOf(request)
	for try := 0; ; try++ {
		conn, err := route.request(ctx, request)
		if err == nil {
			if route.Way == Outbound && try > 0 {
				// An endpoint that was registered through us is not here any more.
				s.directory.forget(s.directory.registered, endpoint)
			}
			*kept = route
			return conn, nil
		}
		// The elements behind change what they are given; who is before us still needs
		// it, and so does the next try.
		given.into(request)
		again, ok := s.another(ctx, route, behind, err, try, began, end)
		if !ok {
			return nil, err
		}
		log.FromContext(ctx).Debugf("directory: trying %s again at %s: %v", endpoint, again.URL, err)
		route = again
	}
}

// given is a Request as it was given, for when it has failed.
type given struct {
	request packed.Message[*networkservice.NetworkServiceRequest] // but for the path
	path    *networkservice.Path
}

// copyOf keeps a request. Its path, four fifths of it, is not copied: nothing behind this
// element changes that.
func copyOf(request *networkservice.NetworkServiceRequest) given {
	conn := request.GetConnection()
	path := conn.GetPath()
	conn.Path = nil
	defer func() { conn.Path = path }()
	return given{request: packed.Pack(request), path: path}
}

// into makes the request what it was.
func (g given) into(request *networkservice.NetworkServiceRequest) {
	g.request.Into(request)
	request.Connection.Path = g.path
}

// namesBehind returns the names that follow us on a connection's path.
func namesBehind(conn *networkservice.Connection) []string {
	var names []string
	for i, segment := range conn.GetPath().GetPathSegments() {
		if i > int(conn.GetPath().GetIndex()) {
			names = append(names, segment.GetName())
		}
	}
	return names
}

// request sends one try along the route.
func (r Route) request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	ctx = hop.WithDestination(ctx, r.URL)
	endpoint, service := request.GetConnection().GetNetworkServiceEndpointName(), request.GetConnection().GetNetworkService()
	r.strip(request.GetConnection())
	conn, err := next.Server(ctx).Request(ctx, request)
	if err != nil {
		return nil, err
	}
	conn.NetworkServiceEndpointName, conn.NetworkService = endpoint, service
	return conn, nil
}

func (r Route) strip(conn *networkservice.Connection) {
	if r.Way == Inbound {
		conn.NetworkServiceEndpointName = interdomain.Target(conn.GetNetworkServiceEndpointName())
		conn.NetworkService = interdomain.Target(conn.GetNetworkService())
	}
}

// another decides whether a failed Request is tried again, and where.
func (s *server) another(ctx context.Context, route Route, behind []string, err error, try int, began, end time.Time) (Route, bool) {
	if errors.Is(err, hop.ErrSelf) {
		inbound, err := s.directory.Inbound(ctx, route.Endpoint, behind)
		return inbound, err == nil && route.Way == Outbound
	}
	transport, lost := errors.AsType[*hop.TransportError](err)
	if lost && transport.Sent && len(behind) == 0 {
		leg.RequestedTwice(ctx)
	}
	// Whoever rotates between its handshake and its token is refused by the next one
	// on the way. What a caller had been granted before is asked for once more.
	refused := status.Code(err) == codes.PermissionDenied && leg.State[Route](ctx).Way != 0 && !leg.InPlace(ctx)
	if !lost && try > 0 {
		return Route{}, false
	}
	if lost && leg.HasStopgap(ctx) {
		end = earlier(end, began.Add(brief))
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if ctx.Err() != nil {
		return Route{}, false
	}
	again, moved := s.directory.elsewhere(ctx, route)
	if !moved && !lost && !refused {
		return Route{}, false
	}
	if moved && try == 0 {
		return again, true
	}
	select {
	case <-ctx.Done():
		return Route{}, false
	case <-time.After(min(firstPause<<min(try, 10), maxPause)):
		return again, true
	}
}

func deadline(ctx context.Context) time.Time {
	if end, ok := leg.Deadline(ctx); ok {
		return end.Add(-margin)
	}
	return time.Now().Add(patience)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (s *server) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	route := *leg.State[Route](ctx)
	if route.Way == 0 {
		// Opened by an earlier process: the way has to be found first.
		var err error
		if route, err = s.directory.Resolve(ctx, conn.GetNetworkServiceEndpointName(), namesBehind(conn)); err != nil {
			return nil, fmt.Errorf("close: %w", err)
		}
	}
	empty, err := s.close(ctx, route, conn.Clone())
	if errors.Is(err, hop.ErrSelf) && route.Way == Outbound {
		inbound, lookupErr := s.directory.Inbound(ctx, route.Endpoint, namesBehind(conn))
		if lookupErr != nil {
			return nil, lookupErr
		}
		return s.close(ctx, inbound, conn)
	}
	return empty, err
}

// close sends a Close along the route, and to where that leads by then if it does
// not get through.
func (s *server) close(ctx context.Context, route Route, conn *networkservice.Connection) (*emptypb.Empty, error) {
	ctx = hop.WithDestination(ctx, route.URL)
	ctx = hop.WithWhere(ctx, func(ctx context.Context) *url.URL {
		again, err := s.directory.Again(ctx, route)
		if err != nil {
			return nil
		}
		return again.URL
	})
	route.strip(conn)
	return next.Server(ctx).Close(ctx, conn)
}

package hop

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

// use is a leg's hold on the hop it goes over.
type use struct{ handle *Handle }

type destinationKey struct{}

// WithDestination says where a Request or Close goes. (The SDK's clienturlctx does
// the same, and formats a log line each time.)
func WithDestination(ctx context.Context, u *url.URL) context.Context {
	return context.WithValue(ctx, destinationKey{}, u)
}

func destination(ctx context.Context) *url.URL {
	u, _ := ctx.Value(destinationKey{}).(*url.URL)
	return u
}

// server is the end of the chain: it sends what arrives over the hop to the
// destination in the context.
type server struct {
	pool *Pool

	// mu guards the following field.
	mu sync.Mutex
	// closing holds the Closes that have not got through, by connection id.
	closing map[string]map[*retry]struct{}
}

// NewServer is the last element of the chain. It keeps the leg on its hop while
// the URL stays, and moves it when another one answers: the new hop first, then
// the old one is released. A Request that fails leaves the leg on the hop it
// was on.
func NewServer(pool *Pool) networkservice.NetworkServiceServer {
	return &server{pool: pool, closing: make(map[string]map[*retry]struct{})}
}

// FromLeg returns the handle on the hop that the current leg goes over, or nil.
// It belongs to the leg: whoever keeps it has to Retain it.
func FromLeg(ctx context.Context) *Handle { return leg.State[use](ctx).handle }

func (s *server) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	handle, err := s.pool.Take(destination(ctx))
	if err != nil {
		return nil, err
	}
	sending, settle := s.claim(request.GetConnection().GetId(), handle.Target())
	good := false
	defer func() { settle(good) }()
	s.yield(ctx, sending)
	var trailer metadata.MD
	conn, err := networkservice.NewNetworkServiceClient(handle).Request(s.pool.mark(ctx), request, grpc.Trailer(&trailer))
	switch {
	case err != nil && returned(trailer):
		err = fmt.Errorf("%w: %w", ErrSelf, err)
	case err == nil:
		err = checkAnswer(conn, request.GetConnection().GetPath())
	}
	if err != nil {
		handle.Release()
		return nil, fmt.Errorf("request: %w", err)
	}
	good = true
	handle.hop.facts.peer.Store(int32(kind(trailer)))
	state := leg.State[use](ctx)
	state.handle, handle = handle, state.handle
	handle.Release()
	return conn, nil
}

// checkAnswer holds the far side's answer against the path that was sent: who
// comes before us, and until when they are good, is not the far side's to say, and
// stays as it was sent. Of our own segment it says which token of ours it goes by.
// What stands after us may be new. The elements before ours rely on it.
func checkAnswer(conn *networkservice.Connection, sent *networkservice.Path) error {
	index := int(sent.GetIndex())
	segments := conn.GetPath().GetPathSegments()
	if len(segments) <= index {
		return status.Errorf(codes.Internal, "the far side's answer has a path of %d segments, too short for place %d", len(segments), index)
	}
	for i, segment := range sent.GetPathSegments()[:index+1] {
		if segments[i].GetId() != segment.GetId() {
			return status.Errorf(codes.Internal, "the far side's answer has another id at place %d of the path", i)
		}
		if i < index {
			segments[i] = segment
		}
	}
	conn.Path.Index, conn.Id = sent.GetIndex(), segments[index].GetId()
	// What callers may not say to us they are not to hear from us either: they send it
	// back with their next refresh.
	if err := guard.CheckConnection(conn); err != nil {
		return status.Errorf(codes.Internal, "in the far side's answer: %v", err)
	}
	return nil
}

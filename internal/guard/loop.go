package guard

import (
	"context"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// maxVisits is how often a path may lead through us. A connection that begins here
// and ends here does so twice, and twice more for each endpoint of this domain that
// it passes through on its way: three of them fit. Proxies of other domains may have
// our name, since it is unique in one domain only: in a chain of nine domains there
// would be eight of them.
const maxVisits = 8

type loopServer struct{ name string }

// NewLoopServer is the element that refuses a Request whose path comes round again
// without end. To come through twice is legitimate: a connection may visit a domain
// again. It comes before updatepath, and name is the one of updatepath. A Close ends
// where its path does, and passes.
func NewLoopServer(name string) networkservice.NetworkServiceServer { return loopServer{name: name} }

func (s loopServer) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	if visits := s.visits(request.GetConnection().GetPath()); visits > maxVisits {
		return nil, status.Errorf(codes.FailedPrecondition,
			"the path comes round again: it leads through %s %d times by now, more than %d", s.name, visits, maxVisits)
	}
	return next.Server(ctx).Request(ctx, request)
}

func (s loopServer) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	return next.Server(ctx).Close(ctx, conn)
}

// visits counts how often the path leads through us, this time included. What stands
// behind the sender's place on it was there before, and is judged where it leads.
func (s loopServer) visits(path *networkservice.Path) int {
	visits := 1
	// A sender of our name has the segment that is to be ours: it is this visit.
	for _, segment := range path.GetPathSegments()[:path.GetIndex()] {
		if segment.GetName() == s.name {
			visits++
		}
	}
	return visits
}

package hop

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// ErrSelf says that the far side of a Request turned out to be this process: a
// balancer or another address of ours stands in the URL, and its text does not
// tell.
var ErrSelf = errors.New("the request came back to its sender")

const (
	// senderKey carries who sent a Request. Stock peers pass it by.
	senderKey = "nsmgr-proxy-sender"
	// kindKey in a trailer says that the answer is from a proxy like this one.
	kindKey = "nsmgr-proxy-kind"
	// returnedKey in a trailer says that a Request had come from here.
	returnedKey = "nsmgr-proxy-returned"
)

var ourKind = metadata.Pairs(kindKey, "true")

// mark signs an outgoing Request or Close as ours.
func (p *Pool) mark(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, senderKey, p.sender)
}

func newSender() string { return rand.Text() }

// kind tells from the trailer of a Request that was answered what the far side is.
func kind(trailer metadata.MD) Peer {
	if len(trailer.Get(kindKey)) > 0 {
		return Ours
	}
	return Stock
}

// returned tells from the trailer whether a Request had come back to us.
func returned(trailer metadata.MD) bool { return len(trailer.Get(returnedKey)) > 0 }

type selfServer struct{ pool *Pool }

// NewSelfServer is the element that refuses what this process has sent itself.
// It comes first: further in, such a Request would wait for itself.
func NewSelfServer(pool *Pool) networkservice.NetworkServiceServer { return &selfServer{pool: pool} }

func (s *selfServer) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	if err := s.refuse(ctx); err != nil {
		return nil, err
	}
	_ = grpc.SetTrailer(ctx, ourKind)
	return next.Server(ctx).Request(ctx, request)
}

func (s *selfServer) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	if err := s.refuse(ctx); err != nil {
		return nil, err
	}
	return next.Server(ctx).Close(ctx, conn)
}

// refuse returns an error, and says so in the trailer, if the call is our own.
func (s *selfServer) refuse(ctx context.Context) error {
	if !s.ours(ctx) {
		return nil
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs(returnedKey, "true"))
	return status.Error(codes.FailedPrecondition, "hop: "+ErrSelf.Error())
}

func (s *selfServer) ours(ctx context.Context) bool {
	for _, sender := range metadata.ValueFromIncomingContext(ctx, senderKey) {
		if sender == s.pool.sender {
			return true
		}
	}
	return false
}

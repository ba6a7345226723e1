package hop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/clienturlctx"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

const (
	// closePatience is how long a Close waits for a hop that is down before it
	// goes on behind the caller's back: a client that leaves has no use for
	// the far side's troubles.
	closePatience = time.Second
	// closeRetry is how long it goes on. The far side's token ends what is
	// still open after that.
	closeRetry = 30 * time.Second
	// closePause is the time between two of those attempts.
	closePause = time.Second
)

// use is a leg's hold on the hop it goes over.
type use struct{ handle *Handle }

// server is the end of the chain: it sends what arrives over the hop to the
// URL in the context.
type server struct {
	pool *Pool

	// mu guards the following field.
	mu sync.Mutex
	// closing holds what stops each Close that is still being retried.
	closing map[farLeg]*retry
}

// farLeg is a leg as a far side knows it: after a reselect the same id may be
// in use at another.
type farLeg struct{ target, id string }

// retry is one Close that goes on behind its caller.
type retry struct{ cancel context.CancelFunc }

// NewServer is the last element of the chain. It keeps the leg on its hop while
// the URL stays, and moves it when another one answers: the new hop first, then
// the old one is released. A Request that fails leaves the leg on the hop it
// was on.
func NewServer(pool *Pool) networkservice.NetworkServiceServer {
	return &server{pool: pool, closing: make(map[farLeg]*retry)}
}

// FromLeg returns the handle on the hop that the current leg goes over, or nil.
// It belongs to the leg: whoever keeps it has to Retain it.
func FromLeg(ctx context.Context) *Handle { return leg.State[use](ctx).handle }

func (s *server) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	handle, err := s.pool.Take(clienturlctx.ClientURL(ctx))
	if err != nil {
		return nil, err
	}
	s.replace(farLeg{handle.Target(), request.GetConnection().GetId()}, nil)
	conn, err := networkservice.NewNetworkServiceClient(handle).Request(ctx, request)
	if err != nil {
		handle.Release()
		return nil, fmt.Errorf("request: %w", err)
	}
	state := leg.State[use](ctx)
	state.handle, handle = handle, state.handle
	handle.Release()
	return conn, nil
}

func (s *server) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	state := leg.State[use](ctx)
	handle := state.handle
	state.handle = nil
	if handle == nil {
		// Closed by a process that did not open it: where it leads was looked up.
		var err error
		if handle, err = s.pool.Take(clienturlctx.ClientURL(ctx)); err != nil {
			return nil, err
		}
	}
	if leg.HandedOver(ctx) {
		handle.Release()
		return new(emptypb.Empty), nil
	}
	if s.connected(ctx, handle) {
		_, err := networkservice.NewNetworkServiceClient(handle).Close(ctx, conn)
		if _, lost := errors.AsType[*TransportError](err); !lost {
			handle.Release()
			return new(emptypb.Empty), err
		}
	}
	s.closeLater(ctx, handle, conn.Clone())
	return new(emptypb.Empty), nil
}

// connected waits a little for the hop.
func (s *server) connected(ctx context.Context, handle *Handle) bool {
	return handle.hop.conn.Load().await(ctx, closePatience) == nil && handle.Connected()
}

// replace drops a Close that is still being retried for one that begins, or for
// a newer Request, which uses the id.
func (s *server) replace(id farLeg, r *retry) {
	s.mu.Lock()
	old := s.closing[id]
	if r != nil {
		s.closing[id] = r
	} else {
		delete(s.closing, id)
	}
	s.mu.Unlock()
	if old != nil {
		old.cancel()
	}
}

// ended forgets a retry, unless another one has taken its place.
func (s *server) ended(id farLeg, r *retry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing[id] == r {
		delete(s.closing, id)
	}
}

// closeLater retries a Close that the hop did not take, and releases the hop.
func (s *server) closeLater(ctx context.Context, handle *Handle, conn *networkservice.Connection) {
	logger := log.FromContext(ctx).WithField("connection", conn.GetId()).WithField("hop", handle.Target())
	logger.Info("close: hop is down, retrying behind the caller")
	retryCtx, cancel := context.WithTimeout(s.pool.ctx, closeRetry)
	r := &retry{cancel: cancel}
	id := farLeg{handle.Target(), conn.GetId()}
	s.replace(id, r)
	s.pool.background(func() {
		defer handle.Release()
		defer s.ended(id, r)
		defer cancel()
		for {
			_, err := networkservice.NewNetworkServiceClient(handle).Close(retryCtx, conn.Clone())
			if _, lost := errors.AsType[*TransportError](err); !lost {
				logger.Debugf("close: delivered: %v", err)
				return
			}
			select {
			case <-retryCtx.Done():
				logger.Warnf("close: given up: %v", err)
				return
			case <-time.After(closePause):
			}
		}
	})
}

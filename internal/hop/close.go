package hop

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/admit"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

const (
	// closeAnswer is how long the far side may take to answer one.
	closeAnswer = 15 * time.Second
	// closeRetry is how long a Close that did not get through is retried. The
	// far side's token ends what is still open after that.
	closeRetry = 30 * time.Second
	// closePause is the time between two of those attempts.
	closePause = time.Second
)

var errSuperseded = errors.New("superseded by a newer request")

// sending is one attempt at a Close.
type sending struct {
	noted
	cancel context.CancelFunc
	ended  chan struct{}
}

func (s *server) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	state := leg.State[use](ctx)
	handle := state.handle
	state.handle = nil
	if handle == nil {
		// Closed by a process that did not open it: where it leads was looked up.
		var err error
		if handle, err = s.pool.Take(destination(ctx)); err != nil {
			return nil, err
		}
	}
	if leg.HandedOver(ctx) {
		handle.Release()
		return new(emptypb.Empty), nil
	}
	done := make(chan error, 1)
	r := &retry{target: handle.Target()}
	s.begin(conn.GetId(), r)
	target, end := handle.Target(), admit.Behind(ctx)
	if !s.pool.background(func() {
		defer end()
		done <- s.deliver(ctx, r, handle, conn.Clone())
	}) {
		end()
		s.ended(conn.GetId(), r)
		handle.Release()
		return new(emptypb.Empty), nil
	}
	select {
	case err := <-done:
		return new(emptypb.Empty), err
	case <-time.After(time.Until(leg.Patience(ctx))):
		log.FromContext(ctx).Infof("close: no answer from %s yet, going on behind the caller", target)
		return new(emptypb.Empty), nil
	}
}

// deliver brings a Close to the far side, however often the hop fails, and
// releases the hop. It ends early when a newer Request uses the leg's id there.
func (s *server) deliver(ctx context.Context, r *retry, handle *Handle, conn *networkservice.Connection) error {
	defer s.ended(conn.GetId(), r)
	defer func() { handle.Release() }()
	logger := log.FromContext(ctx).WithField("connection", conn.GetId())
	ctx = context.WithoutCancel(ctx)
	for end := time.Now().Add(closeRetry); ; {
		err := s.closeOnce(ctx, r, handle, conn.Clone())
		if _, lost := errors.AsType[*TransportError](err); !lost {
			return err
		}
		if s.claimed(r) {
			end = time.Now().Add(closeRetry) // the time in which it may not be sent does not count
		}
		if time.Now().After(end) || !s.pause(ctx, closePause) {
			logger.Infof("close: given up: %v", err)
			return nil
		}
		var ok bool
		if handle, ok = s.again(ctx, r, handle); !ok {
			logger.Info("close: given up for a newer request")
			return nil
		}
	}
}

// closeOnce makes one attempt. While it waits for the hop a newer Request may come:
// then nothing is sent.
func (s *server) closeOnce(ctx context.Context, r *retry, handle *Handle, conn *networkservice.Connection) error {
	ctx, cancel := context.WithTimeout(ctx, closeAnswer)
	defer cancel()
	if err := handle.hop.conn.Load().await(ctx, handle.hop.dialTimeout); err != nil {
		return err
	}
	attempt := &sending{noted: noted{Handle: handle}, cancel: cancel, ended: make(chan struct{})}
	if !s.mayBegin(r, attempt) {
		return &TransportError{Target: handle.Target(), Err: errSuperseded}
	}
	defer close(attempt.ended)
	var trailer metadata.MD
	_, err := networkservice.NewNetworkServiceClient(attempt).Close(s.pool.mark(ctx), conn, grpc.Trailer(&trailer))
	if err != nil && !attempt.sent.Load() {
		// Also where it was cancelled for a newer Request.
		return &TransportError{Target: handle.Target(), Err: err}
	}
	if err != nil && returned(trailer) {
		return fmt.Errorf("%w: %w", ErrSelf, err)
	}
	return err
}

func (s *server) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.pool.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// again returns the handle for the next attempt, in exchange for the last one's:
// the same, or one on where the far side is by now. It returns false where there
// must not be another attempt.
func (s *server) again(ctx context.Context, r *retry, handle *Handle) (*Handle, bool) {
	moved := s.moved(ctx, handle)
	s.mu.Lock()
	if moved != nil && !r.pinned && r.claims == 0 {
		r.target = moved.Target()
		handle, moved = moved, handle
	}
	superseded := r.superseded
	s.mu.Unlock()
	moved.Release()
	return handle, !superseded
}

// moved returns a handle on where the far side is by now, or nil if that is
// where it was.
func (s *server) moved(ctx context.Context, handle *Handle) *Handle {
	find, ok := ctx.Value(whereKey{}).(func(context.Context) *url.URL)
	if !ok {
		return nil
	}
	u := find(ctx)
	if target, err := Target(u); err != nil || target == handle.Target() {
		return nil
	}
	next, err := s.pool.Take(u)
	if err != nil {
		return nil
	}
	return next
}

type whereKey struct{}

// WithWhere lets a Close that does not get through find out where the far side
// is by now. Find returns nil if it does not know.
func WithWhere(ctx context.Context, find func(context.Context) *url.URL) context.Context {
	return context.WithValue(ctx, whereKey{}, find)
}

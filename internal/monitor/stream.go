package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// shown is a stream whose initial state held the leg.
type shown struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
	began  time.Time
}

// watch opens one stream, and waits for its initial state.
func (r *relay) watch(ctx context.Context) (_ *shown, err error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	limit := initialTimeout
	if !r.down && r.grace > 0 {
		limit = min(limit, max(r.left(), time.Millisecond))
	}
	// Silence is not absence: a far side that takes the call and says nothing
	// has not opened the stream.
	late := time.AfterFunc(limit, func() {
		r.hop.Suspect()
		cancel()
	})
	defer late.Stop()
	answers := r.table.opening(r)
	stream, err := networkservice.NewMonitorConnectionClient(r.hop).MonitorConnections(ctx, r.selector(), grpc.ForceCodecV2(newFrames()))
	if err != nil {
		return nil, fmt.Errorf("monitor: open: %w", err)
	}
	for {
		said, err := receive(stream)
		switch {
		case err != nil && refused(err) && ctx.Err() == nil:
			return nil, fmt.Errorf("%w: %w", errMissing, err)
		case err != nil:
			return nil, fmt.Errorf("monitor: stream: %w", err)
		case said.kind != networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER:
			if err := r.bring(said); err != nil {
				return nil, err
			}
			continue
		case !late.Stop():
			return nil, fmt.Errorf("monitor: no initial state within %s", limit)
		}
		shows, err := r.take(said, answers)
		if err != nil {
			return nil, err
		}
		if !shows {
			if r.table.opening(r) != answers {
				return nil, errEarly
			}
			return nil, errMissing
		}
		r.noteResumed()
		return &shown{stream: stream, cancel: cancel, began: began}, nil
	}
}

func receive(stream grpc.ClientStream) (heard, error) {
	var f frame
	if err := stream.RecvMsg(&f); err != nil {
		return heard{}, err
	}
	return parse(f)
}

// listen brings what comes on a stream to the table, one event after the other, until
// it ends. Its own stack stays small: what an event takes, another goroutine has.
func (r *relay) listen(ctx context.Context, s *shown) {
	var err error
	for err == nil {
		var f frame
		if err = s.stream.RecvMsg(&f); err == nil {
			err = errBroken
			r.table.work.Run("relay", func() { err = r.handle(f) })
		}
	}
	r.table.wg.Go(func() { r.after(ctx, s, err) })
}

// errBroken is what is left of an event that panicked.
var errBroken = errors.New("monitor: an event could not be handled")

// handle brings one event to the table.
func (r *relay) handle(f frame) error {
	said, err := parse(f)
	if err != nil {
		return err
	}
	return r.bring(said)
}

// after goes on when a stream has ended.
func (r *relay) after(ctx context.Context, s *shown, err error) {
	s.cancel()
	if ctx.Err() != nil || errors.Is(err, errBroken) {
		r.proceed(ctx, func() bool { return false })
		return
	}
	r.proceed(ctx, func() bool {
		r.lost(ctx, s, fmt.Errorf("monitor: stream: %w", err))
		r.table.wg.Go(func() { r.open(ctx) })
		return true
	})
}

// selector asks for our own segment. Its id is what makes it ours.
func (r *relay) selector() *networkservice.MonitorScopeSelector {
	return &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Id: r.ours.id, Name: r.ours.name}},
	}
}

// bring passes on what an event says of the leg.
func (r *relay) bring(said heard) error {
	words, err := r.ours.words(said)
	if err != nil {
		return err
	}
	for _, w := range words {
		r.table.hear(r, w)
		if said.kind != networkservice.ConnectionEventType_DELETE {
			r.closeGhost(w)
		}
	}
	return nil
}

// take takes an initial state. It returns false if the leg is not in it.
func (r *relay) take(said heard, answers int) (shown bool, err error) {
	words, err := r.ours.words(said)
	if err != nil {
		return false, err
	}
	for _, w := range words {
		r.closeGhost(w)
		shown = r.table.resume(r, w, answers) || shown
	}
	return shown, nil
}

// refused tells a far side that ends the stream by its own word from a way that
// is broken. A stock server that stops ends it with EOF.
func refused(err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal:
		return false
	default:
		return true
	}
}

package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// watch opens one stream and brings what comes on it to the table, until it
// ends. Shown tells whether its initial state held the leg.
func (r *relay) watch(ctx context.Context) (shown bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := initialTimeout
	if !r.down && r.grace > 0 {
		limit = min(limit, max(r.left(), time.Millisecond))
	}
	// Silence is not absence: a far side that takes the call and says nothing
	// has not opened the stream.
	late := time.AfterFunc(limit, cancel)
	defer late.Stop()
	answers := r.table.opening(r)
	stream, err := networkservice.NewMonitorConnectionClient(r.hop).MonitorConnections(ctx, r.selector())
	if err != nil {
		return false, fmt.Errorf("monitor: open: %w", err)
	}
	for {
		event, err := stream.Recv()
		switch {
		case err != nil && !shown && refused(err) && ctx.Err() == nil:
			return false, fmt.Errorf("%w: %w", errMissing, err)
		case err != nil:
			return shown, fmt.Errorf("monitor: stream: %w", err)
		case shown || event.GetType() != networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER:
			r.bring(event)
			continue
		case !late.Stop():
			return false, fmt.Errorf("monitor: no initial state within %s", limit)
		}
		if !r.take(event, answers) {
			return false, errMissing
		}
		shown = true
		r.noteResumed()
	}
}

// selector asks for our own segment. Its id is what makes it ours.
func (r *relay) selector() *networkservice.MonitorScopeSelector {
	return &networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Id: r.ours.id, Name: r.ours.name}},
	}
}

// bring passes on what an event says of the leg.
func (r *relay) bring(event *networkservice.ConnectionEvent) {
	for _, conn := range event.GetConnections() {
		if r.ours.about(conn) {
			deleted := event.GetType() == networkservice.ConnectionEventType_DELETE
			r.table.hear(r, word{conn: conn, deleted: deleted})
			if !deleted {
				r.closeGhost(conn)
			}
		}
	}
}

// take takes an initial state. It returns false if the leg is not in it.
func (r *relay) take(event *networkservice.ConnectionEvent, answers int) (shown bool) {
	for _, conn := range event.GetConnections() {
		if r.ours.about(conn) {
			r.closeGhost(conn)
			shown = r.table.resume(r, word{conn: conn}, answers) || shown
		}
	}
	return shown
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

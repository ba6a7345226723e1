package leg

import (
	"context"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Close for a connection that this process does not know is passed on: an earlier
// one has opened it, and its far side waits for it. Where it leads has to be looked up,
// and right after a restart the registries may be away as well. So it goes on behind its
// caller, as a Close over a hop that is down does.

const (
	// orphanRetry is how long it is tried. The far side's token ends what is still
	// open after that.
	orphanRetry = 30 * time.Second
	// orphanPause is the time between two attempts.
	orphanPause = 2 * time.Second
)

// closeOrphan passes a Close on along the connection's own path. The caller has the
// turn of a leg that is not established, and has not any more when it returns.
func (s *server) closeOrphan(ctx context.Context, l *Leg, conn *networkservice.Connection) error {
	done := make(chan error, 1)
	started := s.table.group.Go("closing a connection of an earlier process", func(end context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orphanRetry)
		defer cancel()
		defer context.AfterFunc(end, cancel)()
		done <- s.deliverOrphan(ctx, l, conn)
	})
	if !started {
		l.drop()
		l.leave()
		return nil
	}
	select {
	case err := <-done:
		return err
	case <-time.After(time.Until(Patience(ctx))):
		log.FromContext(ctx).Info("leg: closing a connection of an earlier process behind the caller")
		return nil
	}
}

// deliverOrphan tries until the far side has an answer, or somebody has requested the
// connection anew.
func (s *server) deliverOrphan(ctx context.Context, l *Leg, conn *networkservice.Connection) error {
	for again := false; ; again = true {
		err := s.closeOrphanOnce(ctx, l, conn, again)
		if status.Code(err) != codes.Unavailable {
			return err
		}
		select {
		case <-ctx.Done():
			log.FromContext(ctx).Infof("leg: closing a connection of an earlier process: given up: %v", err)
			return err
		case <-time.After(orphanPause):
		}
		if l, err = s.table.enter(ctx, conn.GetId(), true); err != nil {
			return err
		}
		if l.established {
			l.leave()
			return nil
		}
	}
}

// closeOrphanOnce makes one attempt, and gives the turn back.
func (s *server) closeOrphanOnce(ctx context.Context, l *Leg, conn *networkservice.Connection, again bool) error {
	defer l.leave()
	defer l.drop()
	ctx = withLeg(ctx, l)
	if again {
		ctx = withReason(ctx, retried)
	}
	_, err := next.Server(ctx).Close(ctx, conn.Clone())
	return err
}

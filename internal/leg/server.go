package leg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/packed"
)

const (
	// closeTimeout bounds a Close that nobody waits for: as long as the SDK gives a
	// caller's own try.
	closeTimeout = 15 * time.Second
	// closePatience is how long a Close holds its caller in all. Then it goes on
	// behind: a Request may be in flight, the hop or a registry down, and a client that
	// leaves has no use for that.
	closePatience = time.Second
)

type server struct{ table *Table }

// NewServer is the element that gives each connection its leg. It comes right
// behind updatepath, which gives the connection its id.
func NewServer(t *Table) networkservice.NetworkServiceServer { return &server{table: t} }

func (s *server) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	l, err := s.table.enter(ctx, request.GetConnection().GetId(), true)
	if err != nil {
		return nil, fmt.Errorf("leg: waiting for an earlier request: %w", err)
	}
	defer l.forsaken() // when the turn has been left: this Request may have been its last hope
	defer l.leave()
	// Also where an element below panics: a leg that was never answered is not
	// kept.
	defer l.dropUnlessEstablished()
	if err := l.takePlace(ctx); err != nil {
		return nil, err
	}
	// A path that leads on is of a connection that was there before: it is a
	// refresh also to a process that has not seen it yet.
	first := !l.established && request.GetConnection().GetNextPathSegment() == nil
	if first {
		old, err := l.adopt(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("leg: waiting for an abandoned request: %w", err)
		}
		defer l.inherit(ctx, old)
		defer s.table.begin(l, request.GetConnection())()
	}
	run, cancel := detach(withLeg(ctx, l))
	defer cancel()
	if l.established && request.GetConnection().GetState() == networkservice.State_RESELECT_REQUESTED {
		l.closeOld(run)
	}
	arrived := expiryBeforeUs(request.GetConnection())
	l.incoming = request
	asked := packed.Pack(&networkservice.NetworkServiceRequest{MechanismPreferences: request.GetMechanismPreferences()})
	defer func() { l.incoming = nil }()
	early := requestTime(ctx)
	conn, err := next.Server(ctx).Request(run, request)
	if err != nil {
		return nil, err
	}
	conn.State = networkservice.State_UP
	l.keep(conn)
	l.request = asked
	l.caller, l.server, l.arrived = callerOf(ctx), next.Server(ctx), arrived
	l.answered = packed.Message[*networkservice.Connection]{}
	l.fillPlace(ctx)
	l.early = early
	l.startExpiry(conn)
	l.settle(ctx, run, first)
	return conn, nil
}

func (l *Leg) dropUnlessEstablished() {
	if !l.established && !l.gone {
		l.drop()
	}
}

// closeOld ends the leg before a new selection, in half of the caller's time at
// most. Its failure is the old far side's affair: it must not keep the client
// from the new one.
func (l *Leg) closeOld(ctx context.Context) {
	log.FromContext(ctx).Info("leg: reselect requested, closing the old leg")
	timeout := closeTimeout
	if deadline := callerDeadline(ctx); !deadline.IsZero() {
		timeout = min(timeout, time.Until(deadline)/2)
	}
	closeCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := l.closeFar(closeCtx, reselecting); err != nil {
		log.FromContext(ctx).Warnf("leg: close before reselect: %v", err)
	}
	l.established = false
	l.memory = nil
	l.stopExpiry()
}

func (s *server) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	ctx = withPatience(ctx)
	waiting, cancel := context.WithDeadline(ctx, Patience(ctx))
	defer cancel()
	l, err := s.table.enter(waiting, conn.GetId(), conn.GetNextPathSegment() != nil)
	if err != nil {
		// Another call has the turn, most often a Request in flight; what the caller
		// wants is clear all the same.
		log.FromContext(ctx).Debugf("leg: an earlier call goes on, closing behind the caller")
		s.closeBehind(ctx, conn)
		return new(emptypb.Empty), nil
	}
	if l == nil {
		return new(emptypb.Empty), nil
	}
	if !l.established {
		return new(emptypb.Empty), s.closeOrphan(ctx, l, conn)
	}
	defer l.leave()
	known := l.last()
	if l.older(conn, known) {
		log.FromContext(ctx).Info("leg: a Close from before the last Request, ignored")
		return new(emptypb.Empty), nil
	}
	closing := new(closing)
	// What the caller knows of the connection may be older than what we do.
	_, err = next.Server(ctx).Close(withClosing(withLeg(ctx, l), closing), known)
	if err == nil || closing.begun {
		l.drop()
	}
	return new(emptypb.Empty), err
}

// older tells whether a Close was made before the last good Request: the hop
// before us, which signs each of its calls anew, signed it earlier.
//
// What it signed is in the path as the Request arrived and, for the call itself, as
// it was answered. The two may be capped by different certificates, and a Close may
// carry either: it is older if it was signed before both. Certificates can also make
// expiries stand still, so equal ones say nothing.
func (l *Leg) older(closed, known *networkservice.Connection) bool {
	signed, answered := expiryBeforeUs(closed), expiryBeforeUs(known)
	return !signed.IsZero() && signed.Before(answered) && (l.arrived.IsZero() || signed.Before(l.arrived))
}

// expiryBeforeUs is until when the hop before us is good for, or zero.
func expiryBeforeUs(conn *networkservice.Connection) time.Time {
	if expires := conn.GetPrevPathSegment().GetExpires(); expires != nil {
		return expires.AsTime()
	}
	return time.Time{}
}

// Rerequest sends the leg's own copy of the last good request again, with the
// context and the far path as they are known by now. The error is the far side's,
// or the context's; the leg stays as it was then. A leg that is gone, or that
// had a good Request while we waited for its turn, needs none: that is no error.
// It yields to whoever comes from downstream.
func (l *Leg) Rerequest(ctx context.Context, known *networkservice.Connection) error {
	good := l.good.Load()
	ok, err := l.take(ctx)
	if err != nil {
		return fmt.Errorf("leg: waiting for an earlier request: %w", err)
	}
	if !ok {
		return nil
	}
	defer l.forsaken() // whoever stopped waiting in the meantime took us for one who waits
	defer l.leave()
	if !l.established || l.good.Load() != good {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, ok := l.interruptible(&interrupt{cancel: cancel})
	if !ok {
		return errYielded
	}
	defer stop()
	ctx = withReason(withLeg(l.caller.context(ctx), l), inPlace)
	conn, err := l.server.Request(ctx, l.again(known))
	if err != nil {
		return fmt.Errorf("leg: re-request: %w", err)
	}
	conn.State = networkservice.State_UP
	last := l.answer
	l.keep(conn)
	l.startExpiry(conn) // our own token is new
	if !l.answered.Set() && !proto.Equal(essence(last.Unpack()), essence(conn)) {
		// Whoever is downstream refreshes with what it was answered last.
		l.answered = last
	}
	return nil
}

// again is the last good request with what the far side has said since, which
// becomes part of it.
func (l *Leg) again(known *networkservice.Connection) *networkservice.NetworkServiceRequest {
	request := l.lastRequest()
	own := int(request.GetConnection().GetPath().GetIndex()) + 1
	if known == nil || len(known.GetPath().GetPathSegments()) < own {
		return request
	}
	request.Connection.Context = known.GetContext()
	request.Connection.Path.PathSegments = append(request.Connection.Path.PathSegments[:own], known.GetPath().GetPathSegments()[own:]...)
	return request
}

var errYielded = errors.New("leg: re-request: somebody from downstream waits")

// interruptible lets whoever comes from downstream end a re-request. It returns
// false if somebody waits already. The caller has the turn.
func (l *Leg) interruptible(i *interrupt) (end func(), ok bool) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if l.waiters > 0 {
		return nil, false
	}
	l.interrupt = i
	return func() {
		l.table.mu.Lock()
		defer l.table.mu.Unlock()
		l.interrupt = nil
	}, true
}

package hop

import (
	"context"
	"crypto/x509"
	"sync/atomic"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

// margin is left of a caller's deadline by whoever waits for a connection.
const margin = time.Second

// hop is what the handles on one target share. The connection in it may be
// replaced; the handles stay.
type hop struct {
	// Set once at construction.
	target      string
	dialTimeout time.Duration
	log         log.Logger

	// users counts the handles. It changes under the pool's lock only; atomic so
	// that others may look without it.
	users atomic.Int64
	// dials counts the connections that came up, and facts are what else is known of
	// the far side (status.go).
	dials atomic.Int64
	facts facts
	// theirs is the far side's certificate at the last handshake, and renewedFor the one
	// for whose end a connection was last renewed.
	theirs, renewedFor atomic.Pointer[x509.Certificate]
	// other is the far side's certificate if what it answers is signed by somebody else.
	other atomic.Pointer[x509.Certificate]
	// conn is the current connection. It is replaced under the pool's lock only.
	conn atomic.Pointer[conn]

	// closing is the linger of a hop without handles, lingers counts them.
	// Guarded by the pool's lock.
	closing *time.Timer
	lingers int
	// kept are the connections that have been replaced and are kept for their
	// watches, the oldest first. Guarded by the pool's lock.
	kept []*conn
}

// conn is one gRPC connection with what keeps it up.
type conn struct {
	// Set once at construction.
	pool   *Pool
	hop    *hop
	cc     *grpc.ClientConn
	ctx    context.Context // ends with the connection
	stop   context.CancelFunc
	wakeup chan struct{}

	// lastPayload is when a message last went either way, in Unix nanoseconds.
	lastPayload atomic.Int64
	// examining is taken by who finds out whether the peer is alive.
	examining chan struct{}
	// identity names the certificate of the last handshake, and bounded is set
	// once the end of its life is armed.
	identity atomic.Pointer[string]
	bounded  atomic.Bool
	// dialling names the certificate that was current when it was last dialled,
	// endsAt is the end of its life in Unix nanoseconds.
	dialling atomic.Pointer[string]
	endsAt   atomic.Int64
	// begun counts the transports that have shaken hands. With TLS 1.3 a far side that
	// refuses our certificate does so after that: they are not up yet.
	begun atomic.Int64
	// retired is set when it has been replaced.
	retired atomic.Bool
	// calls are the unary calls in flight, watches the streams that keep it.
	calls, watches calls

	// end is the timer of its life, renewal is closed when a successor that is being
	// made is there. Guarded by the pool's lock.
	end     *time.Timer
	renewal chan struct{}
}

// wake tells the keeper that somebody uses the hop now.
func (c *conn) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default: // one token is enough: the keeper looks at everything anew
	}
}

// keep dials whenever the hop is used and not connected. gRPC by itself waits
// for the next call after a cut; a leg that only listens would wait with it.
func (c *conn) keep() {
	up := new(ups)
	defer up.see(c, connectivity.Shutdown)
	for c.ctx.Err() == nil {
		state := c.cc.GetState()
		up.see(c, state)
		if state == connectivity.Shutdown {
			return
		}
		if state != connectivity.Ready && c.retired.Load() {
			c.stop()
			return
		}
		if state != connectivity.Ready {
			c.dials()
		}
		if state == connectivity.Idle {
			if c.hop.users.Load() == 0 {
				select {
				case <-c.ctx.Done():
				case <-c.wakeup:
				}
				continue
			}
			c.cc.Connect()
		}
		c.cc.WaitForStateChange(c.ctx, state)
	}
}

// ups says when a connection is up and when it is not any more.
type ups struct {
	up bool
	// begun is that of the transport that is or was up.
	begun int64
}

// see takes in what state the connection is in. Another transport may have come up
// since the last time.
func (u *ups) see(c *conn, state connectivity.State) {
	begun := c.begun.Load()
	ready := state == connectivity.Ready
	if u.up && (!ready || begun != u.begun) {
		c.hop.log.Info("connection lost or closed")
		u.up = false
	}
	if ready && !u.up {
		c.hop.log.Infof("connected (%d)", c.hop.dials.Add(1))
		u.up, u.begun = true, begun
	}
}

// await waits for the verdict of one attempt at a connection, at most limit. A
// failed attempt is no error: the call that follows fails at once, and with the
// reason. An attempt that is still under way is one.
func (c *conn) await(caller context.Context, limit time.Duration) error {
	if c.cc.GetState() == connectivity.Ready {
		return nil // most often
	}
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()
	tried := false
	for {
		state := c.cc.GetState()
		switch state {
		case connectivity.Ready, connectivity.Shutdown:
			return nil
		case connectivity.TransientFailure:
			// A failure from before is no verdict: the next attempt may be
			// the good one.
			if tried {
				return nil
			}
		case connectivity.Connecting:
			tried = true
		case connectivity.Idle:
			c.cc.Connect()
		}
		if !c.cc.WaitForStateChange(ctx, state) {
			if state == connectivity.TransientFailure && caller.Err() == nil {
				return nil // no attempt has begun, as for a name that is not found
			}
			return &TransportError{
				Target: c.hop.target,
				Err:    status.Errorf(codes.Unavailable, "no connection within %s (%s)", limit, state),
			}
		}
	}
}

// limit is how long a call waits for a connection: one attempt, or less if the
// caller's deadline is near. It is to get this error and not its own time-out.
func (h *hop) limit(ctx context.Context) time.Duration {
	deadline, ok := leg.Deadline(ctx)
	if !ok {
		return h.dialTimeout
	}
	left := time.Until(deadline)
	if left <= 0 {
		return h.dialTimeout // it goes on behind its caller
	}
	return min(h.dialTimeout, max(left-margin, left/2))
}

func (c *conn) close() {
	c.pool.mu.Lock()
	if c.end != nil {
		c.end.Stop()
	}
	c.pool.mu.Unlock()
	c.stop()
	if err := c.cc.Close(); err != nil {
		c.hop.log.Debugf("close: %v", err)
	}
}

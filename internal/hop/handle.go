package hop

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Handle is one user's hold on a hop.
type Handle struct {
	pool     *Pool
	hop      *hop
	released atomic.Bool
}

var _ grpc.ClientConnInterface = (*Handle)(nil)

// Release gives the handle back. Only the first call counts.
func (h *Handle) Release() {
	if h != nil && h.released.CompareAndSwap(false, true) {
		h.pool.release(h.hop)
	}
}

// Retain returns a further handle on the same hop. It must not be called on a
// handle that may have been released.
func (h *Handle) Retain() *Handle {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	return h.pool.retain(h.hop)
}

// Same tells whether both are handles on one hop.
func (h *Handle) Same(other *Handle) bool {
	return h != nil && other != nil && h.hop == other.hop
}

// Target names the hop, for logs.
func (h *Handle) Target() string { return h.hop.target }

// Users returns how many handles there are on the hop.
func (h *Handle) Users() int { return int(h.hop.users.Load()) }

// Connected tells whether the hop is usable at this moment.
func (h *Handle) Connected() bool { return h.hop.conn.Load().cc.GetState() == connectivity.Ready }

// Invoke sends a unary call over the hop.
func (h *Handle) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return h.invoke(ctx, new(atomic.Bool), method, args, reply, opts)
}

// invoke notes in sent when the message has gone out.
func (h *Handle) invoke(ctx context.Context, sent *atomic.Bool, method string, args, reply any, opts []grpc.CallOption) error {
	c, err := h.attempt(ctx, sent, method, args, reply, opts)
	if err != nil && c.stale() && ctx.Err() == nil {
		// Refused, maybe, because our certificate changed in the middle of it.
		// The next attempt goes over a connection made with the new one.
		_, err = h.attempt(ctx, sent, method, args, reply, opts)
	}
	return err
}

func (h *Handle) attempt(ctx context.Context, sent *atomic.Bool, method string, args, reply any, opts []grpc.CallOption) (*conn, error) {
	c, done, err := h.hold(ctx, func(c *conn) *calls { return &c.calls })
	if err != nil {
		return c, err
	}
	defer done()
	h.pool.calls.add(1)
	defer h.pool.calls.add(-1)
	defer h.pool.suspect(ctx, c)()
	call, answerer := &call{sent: sent}, new(peer.Peer)
	err = c.cc.Invoke(context.WithValue(ctx, callKey{}, call), method, args, reply, append(failFast(opts), grpc.Peer(answerer))...)
	c.bound(answerer)
	return c, call.wrap(ctx, h.hop, err)
}

// hold returns the connection for a call, and counts the call until done. A
// connection that is replaced meanwhile waits for those that are counted.
func (h *Handle) hold(ctx context.Context, count func(*conn) *calls) (_ *conn, done func(), _ error) {
	for {
		c, err := h.conn(ctx)
		if err != nil {
			return c, nil, err
		}
		n := count(c)
		n.add(1)
		if h.hop.conn.Load() == c {
			return c, func() { n.add(-1) }, nil
		}
		n.add(-1) // replaced in this moment, and may not have been seen
	}
}

// conn returns the connection for a call: the current one, once it is up.
func (h *Handle) conn(ctx context.Context) (*conn, error) {
	c := h.hop.conn.Load()
	switch {
	case c.stale():
		h.pool.renewNow(c, "own certificate has changed")
		c = h.hop.conn.Load()
	case c.over():
		// It is good for this call still, and all there is should there be no other.
		h.pool.renew(c, "a certificate of its handshake has come to its end")
	}
	err := c.await(ctx, h.hop.limit(ctx))
	if err != nil {
		h.hop.facts.failures[Unreachable].Add(1)
	}
	return c, err
}

// NewStream opens a stream over the hop. Errors of the stream itself come as
// gRPC returns them.
func (h *Handle) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c, err := h.conn(ctx)
	if err != nil {
		return nil, err
	}
	call := &call{sent: new(atomic.Bool)}
	stream, err := c.cc.NewStream(context.WithValue(ctx, callKey{}, call), desc, method, failFast(opts)...)
	return stream, call.wrap(ctx, h.hop, err)
}

// watch opens a stream that keeps its connection when that is replaced.
func (h *Handle) watch(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c, done, err := h.hold(ctx, func(c *conn) *calls { return &c.watches })
	if err != nil {
		return nil, err
	}
	defer done() // it counts itself by now
	call := &call{sent: new(atomic.Bool), watch: true}
	stream, err := c.cc.NewStream(context.WithValue(ctx, callKey{}, call), desc, method, failFast(opts)...)
	return stream, call.wrap(ctx, h.hop, err)
}

// failFast puts our own wait in the place of gRPC's WaitForReady, which has no
// end but the caller's deadline.
func failFast(opts []grpc.CallOption) []grpc.CallOption {
	return append(opts[:len(opts):len(opts)], grpc.WaitForReady(false))
}

// TransportError is the failure of a call that the far side did not answer.
type TransportError struct {
	Target string
	Err    error
	// Sent tells that the message had gone out: the far side may have acted on it.
	Sent bool
}

func (e *TransportError) Error() string { return fmt.Sprintf("hop: %s: %v", e.Target, e.Err) }

func (e *TransportError) Unwrap() error { return e.Err }

// GRPCStatus keeps the code of the failure for those who only know gRPC.
func (e *TransportError) GRPCStatus() *status.Status {
	s := status.Convert(e.Err)
	return status.New(s.Code(), "hop: "+e.Target+": "+s.Message())
}

// noted is a handle for one call, of which others can tell whether it has gone out.
type noted struct {
	*Handle
	sent atomic.Bool
}

func (n *noted) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return n.invoke(ctx, &n.sent, method, args, reply, opts)
}

// call notes how far one call has got: its message has gone out, the far side has
// answered.
type call struct {
	sent     *atomic.Bool
	answered atomic.Bool
	// watch is set for a stream that keeps its connection.
	watch bool
}

type callKey struct{}

func (c *call) wrap(ctx context.Context, h *hop, err error) error {
	if err == nil || c.answered.Load() {
		return err
	}
	if status.Code(err) == codes.Canceled && ctx.Err() == nil {
		// It was not the caller who gave up, but we who replaced the connection.
		err = status.Error(codes.Unavailable, "connection replaced: "+status.Convert(err).Message())
	}
	switch {
	case ctx.Err() != nil: // the caller's own end
	case c.sent.Load():
		h.facts.failures[Lost].Add(1)
	default:
		h.facts.failures[Unreachable].Add(1)
	}
	return &TransportError{Target: h.target, Err: err, Sent: c.sent.Load()}
}

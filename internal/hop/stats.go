package hop

import (
	"context"
	"time"

	"google.golang.org/grpc/stats"
)

// A connection is its own stats handler: that is where gRPC tells of payload, of
// answers, and of transports that come and go.
var _ stats.Handler = (*conn)(nil)

// TagRPC implements stats.Handler.
func (c *conn) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *conn) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.Begin:
		c.watching(ctx, 1)
	case *stats.End:
		c.watching(ctx, -1)
	case *stats.InPayload:
		c.lastPayload.Store(time.Now().UnixNano())
	case *stats.OutPayload:
		c.lastPayload.Store(time.Now().UnixNano())
		if call, ok := ctx.Value(callKey{}).(*call); ok {
			call.sent.Store(true)
		}
	case *stats.InTrailer:
		// Trailers come from the far side alone: whatever the status says, it
		// is its answer and not a failure on the way.
		if call, ok := ctx.Value(callKey{}).(*call); ok {
			call.answered.Store(true)
		}
		c.hop.facts.lastAnswer.Store(time.Now().UnixNano())
	}
}

// watching counts the streams that keep their connection.
func (c *conn) watching(ctx context.Context, n int) {
	if call, ok := ctx.Value(callKey{}).(*call); ok && call.watch {
		c.watches.add(n)
	}
}

// TagConn implements stats.Handler.
func (c *conn) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (c *conn) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		c.handshaken()
		c.lastPayload.Store(time.Now().UnixNano())
		c.begun.Add(1)
	}
}

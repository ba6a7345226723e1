package hop

import (
	"context"
	"time"

	"google.golang.org/grpc/stats"
)

// The hop is the stats handler of its own connection: that is where gRPC tells
// of payload, of answers, and of connections that come and go.
var _ stats.Handler = (*hop)(nil)

// TagRPC implements stats.Handler.
func (h *hop) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (h *hop) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.InPayload, *stats.OutPayload:
		h.lastPayload.Store(time.Now().UnixNano())
	case *stats.InTrailer:
		// Trailers come from the far side alone: whatever the status says, it
		// is its answer and not a failure on the way.
		if c, ok := ctx.Value(callKey{}).(*call); ok {
			c.answered.Store(true)
		}
	}
}

// TagConn implements stats.Handler.
func (h *hop) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (h *hop) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		h.lastPayload.Store(time.Now().UnixNano())
		h.log.Infof("connected (%d)", h.dials.Add(1))
	case *stats.ConnEnd:
		h.log.Info("connection lost or closed")
	}
}

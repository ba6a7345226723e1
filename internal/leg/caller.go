package leg

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

// caller is the part of an incoming call's context that outlives the call: who it
// was, and with what token. Its other headers may be of any size.
type caller struct {
	peer *peer.Peer
	md   metadata.MD
}

func callerOf(ctx context.Context) caller {
	var c caller
	c.peer, _ = peer.FromContext(ctx)
	for _, header := range []string{guard.TokenHeader, guard.ExpiresHeader} {
		if values := metadata.ValueFromIncomingContext(ctx, header); len(values) > 0 {
			if c.md == nil {
				c.md = make(metadata.MD, 2)
			}
			c.md[header] = values
		}
	}
	return c
}

func (c caller) context(ctx context.Context) context.Context {
	if c.peer != nil {
		ctx = peer.NewContext(ctx, c.peer)
	}
	if c.md != nil {
		ctx = metadata.NewIncomingContext(ctx, c.md)
	}
	return ctx
}

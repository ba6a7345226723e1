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
	// token and expires are the headers with those names, empty where there are none.
	token, expires string
}

func callerOf(ctx context.Context) caller {
	var c caller
	c.peer, _ = peer.FromContext(ctx)
	c.token, c.expires = header(ctx, guard.TokenHeader), header(ctx, guard.ExpiresHeader)
	return c
}

// header returns the one value of a header: the guard lets no more through.
func header(ctx context.Context, name string) string {
	if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

func (c caller) context(ctx context.Context) context.Context {
	if c.peer != nil {
		ctx = peer.NewContext(ctx, c.peer)
	}
	md := make(metadata.MD, 2)
	if c.token != "" {
		md.Set(guard.TokenHeader, c.token)
	}
	if c.expires != "" {
		md.Set(guard.ExpiresHeader, c.expires)
	}
	if len(md) > 0 {
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	return ctx
}

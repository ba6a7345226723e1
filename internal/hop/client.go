package hop

import (
	"context"
	"net/url"

	"google.golang.org/grpc"
)

// Client is a hop that is taken for good, as the registries' are.
type Client struct {
	handle *Handle
	err    error
}

var _ grpc.ClientConnInterface = (*Client)(nil)

// Client returns a connection to u for the life of the pool. A URL without a
// usable form is reported by each call, not here: a proxy without one registry
// still serves what it can.
func (p *Pool) Client(u *url.URL) *Client {
	handle, err := p.Take(u)
	return &Client{handle: handle, err: err}
}

// Invoke sends a unary call over the hop.
func (c *Client) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if c.err != nil {
		return c.err
	}
	return c.handle.Invoke(ctx, method, args, reply, opts...)
}

// NewStream opens a stream over the hop. It stays on the connection that it was
// opened on when that is replaced: whoever watches a registry begins anew when the
// watch breaks.
func (c *Client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.handle.watch(ctx, desc, method, opts...)
}

package hop

import (
	"context"
	"net/url"

	"google.golang.org/grpc"
)

// client is a hop that is taken for good, as the registries' are.
type client struct {
	handle *Handle
	err    error
}

// Client returns a connection to u for the life of the pool. A URL without a
// usable form is reported by each call, not here: a proxy without one registry
// still serves what it can.
func (p *Pool) Client(u *url.URL) grpc.ClientConnInterface {
	handle, err := p.Take(u)
	return &client{handle: handle, err: err}
}

func (c *client) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if c.err != nil {
		return c.err
	}
	return c.handle.Invoke(ctx, method, args, reply, opts...)
}

func (c *client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.handle.NewStream(ctx, desc, method, opts...)
}

package hop

import (
	"context"
	"net"
)

// DialAddress is the dialer that a pool has of its own.
func DialAddress(ctx context.Context, addr string) (net.Conn, error) { return dialAddress(ctx, addr) }

// KeptMost is for the tests outside.
const KeptMost = keptMost

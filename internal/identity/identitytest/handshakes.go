package identitytest

import (
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// CountHandshakes counts in n the handshakes that a server with these credentials
// begins, also those that fail.
func CountHandshakes(server credentials.TransportCredentials, n *atomic.Int64) credentials.TransportCredentials {
	return counted{server, n}
}

type counted struct {
	credentials.TransportCredentials
	handshakes *atomic.Int64
}

func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.handshakes.Add(1)
	return c.TransportCredentials.ServerHandshake(raw)
}

func (c counted) Clone() credentials.TransportCredentials { return c }

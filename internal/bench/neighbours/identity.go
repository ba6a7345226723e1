package neighbours

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
)

const (
	// svidLifetime outlives every run: renewal is not what is measured. The
	// authority's is 24 h.
	svidLifetime = 23 * time.Hour
	// tokenLifetime is the shipped NSM_MAX_TOKEN_LIFETIME.
	tokenLifetime = 10 * time.Minute
	// buffer keeps the harness small where it holds ten thousand connections.
	buffer = 4 << 10
)

// Identity is what one neighbour shows to others.
type Identity struct {
	Tokens token.GeneratorFunc
	source *identitytest.Source
}

func newIdentity(ca *identitytest.CA, role string, federated *identitytest.CA) (*Identity, error) {
	source, err := identitytest.NewSource(ca, role, svidLifetime, federated)
	if err != nil {
		return nil, err
	}
	return &Identity{Tokens: spiffejwt.TokenGeneratorFunc(source, tokenLifetime), source: source}, nil
}

// DialOptions are a neighbour's: mutual TLS, and a token with each call. What
// succeeds of the handshakes is counted.
func (i *Identity) DialOptions(handshakes *atomic.Int64) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(&counting{i.source.ClientCredentials(), handshakes}),
		grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(i.Tokens))),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer),
	}
}

func (i *Identity) serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(i.source.ServerCredentials()),
		grpc.ReadBufferSize(buffer), grpc.WriteBufferSize(buffer),
	}
}

// counting counts the handshakes that succeed.
type counting struct {
	credentials.TransportCredentials
	handshakes *atomic.Int64
}

func (c *counting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err == nil {
		c.handshakes.Add(1)
	}
	return conn, info, err
}

func (c *counting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err == nil {
		c.handshakes.Add(1)
	}
	return conn, info, err
}

func (c *counting) Clone() credentials.TransportCredentials {
	return &counting{c.TransportCredentials.Clone(), c.handshakes}
}

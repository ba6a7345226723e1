package domain

import (
	"fmt"
	"time"

	"github.com/edwarnicke/grpcfd"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
)

// svidLifetime outlives every run of the lab.
const svidLifetime = 23 * time.Hour

// Identity is what one part of a domain shows to the others.
type Identity struct {
	Tokens token.GeneratorFunc
	source *identitytest.Source
}

// Identity makes a new SVID of this domain for the given role.
func (d *Domain) Identity(role string) (*Identity, error) {
	source, err := identitytest.NewSource(d.CA, role, d.SVIDLifetime, d.Federated...)
	if err != nil {
		return nil, fmt.Errorf("identity of %s: %w", role, err)
	}
	d.mu.Lock()
	d.sources = append(d.sources, source)
	d.mu.Unlock()
	return &Identity{
		Tokens: spiffejwt.TokenGeneratorFunc(source, d.TokenLifetime),
		source: source,
	}, nil
}

// Rotate renews the SVIDs of all parts of the domain.
func (d *Domain) Rotate() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, source := range d.sources {
		if err := source.Rotate(); err != nil {
			return fmt.Errorf("domain %s: %w", d.Name(), err)
		}
	}
	return nil
}

// ServerCredentials lets in whoever a known authority vouches for.
func (i *Identity) ServerCredentials() credentials.TransportCredentials {
	return i.source.ServerCredentials()
}

// DialOptions are the transport and the token of each call. The SDK's elements for
// file descriptors bring credentials of their own; joined as in the stock commands,
// they do not take the token's place.
func (i *Identity) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpcfd.WithChainUnaryInterceptor(),
		grpcfd.WithChainStreamInterceptor(),
		grpc.WithTransportCredentials(i.source.ClientCredentials()),
		grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(i.Tokens))),
	}
}

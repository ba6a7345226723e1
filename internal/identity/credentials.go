package identity

import (
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"google.golang.org/grpc/credentials"
)

// Both credentials accept every SPIFFE ID of a trusted domain: which of them
// may do what is decided by the policies on the tokens. They ask for the SVID
// at each handshake, so a renewed one is used from the next connection on; and
// they are plain grpc TLS credentials, because tokens are bound to the peer
// through credentials.TLSInfo, which go-spiffe's wrapper hides.
// go-spiffe's configurations ask for TLS 1.2 at least.

// ServerCredentials returns the mutual TLS side of a server.
func (s *Source) ServerCredentials() credentials.TransportCredentials {
	config := tlsconfig.MTLSServerConfig(s, s, tlsconfig.AuthorizeAny())
	// A resumed session skips the check of the peer's certificate, so a
	// domain that is no longer federated could come back for days.
	config.SessionTicketsDisabled = true
	return credentials.NewTLS(config)
}

// ClientCredentials returns the mutual TLS side of a client.
func (s *Source) ClientCredentials() credentials.TransportCredentials {
	return credentials.NewTLS(tlsconfig.MTLSClientConfig(s, s, tlsconfig.AuthorizeAny()))
}

// TokenGenerator returns a generator of tokens signed by the current SVID. They
// are valid for maxLifetime, but not longer than the SVID or the certificate of
// the peer they are for.
func (s *Source) TokenGenerator(maxLifetime time.Duration) token.GeneratorFunc {
	return spiffejwt.TokenGeneratorFunc(s, maxLifetime)
}

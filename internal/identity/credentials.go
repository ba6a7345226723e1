package identity

import (
	"crypto/x509"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"google.golang.org/grpc/credentials"
)

// Both credentials accept every SPIFFE ID of a trusted domain, which is any that
// the bundle knows unless domains are named: which of them may do what is decided
// by the policies on the tokens. They ask for the SVID
// at each handshake, so a renewed one is used from the next connection on; and
// they are plain grpc TLS credentials, because tokens are bound to the peer
// through credentials.TLSInfo, which go-spiffe's wrapper hides.
// go-spiffe's configurations ask for TLS 1.2 at least.

// ServerCredentials returns the mutual TLS side of a server.
func (s *Source) ServerCredentials(domains ...spiffeid.TrustDomain) credentials.TransportCredentials {
	config := tlsconfig.MTLSServerConfig(s, s, membersOf(domains))
	// A resumed session skips the check of the peer's certificate, so a
	// domain that is no longer federated could come back for days.
	config.SessionTicketsDisabled = true
	return credentials.NewTLS(config)
}

// ClientCredentials returns the mutual TLS side of a client.
func (s *Source) ClientCredentials(domains ...spiffeid.TrustDomain) credentials.TransportCredentials {
	return credentials.NewTLS(tlsconfig.MTLSClientConfig(s, s, membersOf(domains)))
}

// membersOf refuses, in the handshake, who is not of one of the domains.
func membersOf(domains []spiffeid.TrustDomain) tlsconfig.Authorizer {
	if len(domains) == 0 {
		return tlsconfig.AuthorizeAny()
	}
	return func(id spiffeid.ID, _ [][]*x509.Certificate) error {
		for _, domain := range domains {
			if id.MemberOf(domain) {
				return nil
			}
		}
		return fmt.Errorf("identity: %s is of no domain that may connect", id)
	}
}

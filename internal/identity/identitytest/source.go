package identitytest

import (
	"fmt"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/credentials"
)

// Source is one workload's identity without a Workload API. It is safe for
// concurrent use.
type Source struct {
	ca      *CA
	path    string
	ttl     time.Duration
	trusted []*CA

	mu      sync.RWMutex
	svid    *x509svid.SVID // guarded by mu
	changed chan struct{}  // guarded by mu; closed and replaced by Rotate
}

var (
	_ x509svid.Source   = (*Source)(nil)
	_ x509bundle.Source = (*Source)(nil)
)

// NewSource returns an identity spiffe://<trust domain of ca>/<path> that
// trusts ca and the federated authorities, with the bundles that they have at the
// time.
func NewSource(ca *CA, path string, ttl time.Duration, federated ...*CA) (*Source, error) {
	s := &Source{ca: ca, path: path, ttl: ttl, trusted: append([]*CA{ca}, federated...), changed: make(chan struct{})}
	if err := s.Rotate(); err != nil {
		return nil, err
	}
	return s, nil
}

// Rotate replaces the SVID by one with a new key and the full ttl. If it fails
// the old one stays.
func (s *Source) Rotate() error {
	svid, err := s.ca.SVID(s.path, s.ttl)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.svid = svid
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Current names the certificate in use and tells when it ends.
func (s *Source) Current() (name string, notAfter time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.svid.Certificates[0].SerialNumber.Text(16), s.svid.Certificates[0].NotAfter
}

// Changed returns a channel that is closed at the next rotation.
func (s *Source) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// GetX509SVID returns the current SVID, also when it has expired.
func (s *Source) GetX509SVID() (*x509svid.SVID, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.svid, nil
}

// GetX509BundleForTrustDomain returns the bundle of a trusted domain, an error
// for any other.
func (s *Source) GetX509BundleForTrustDomain(td spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	for _, ca := range s.trusted {
		if ca.TrustDomain() == td {
			return ca.Bundle(), nil
		}
	}
	return nil, fmt.Errorf("identitytest: no bundle of %q", td)
}

// ServerCredentials let in whoever a known authority vouches for.
func (s *Source) ServerCredentials() credentials.TransportCredentials {
	return credentials.NewTLS(tlsconfig.MTLSServerConfig(s, s, tlsconfig.AuthorizeAny()))
}

// ClientCredentials connect to whoever a known authority vouches for.
func (s *Source) ClientCredentials() credentials.TransportCredentials {
	return credentials.NewTLS(tlsconfig.MTLSClientConfig(s, s, tlsconfig.AuthorizeAny()))
}

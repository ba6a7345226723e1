package identitytest

import (
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// Source is one workload's identity without a Workload API. It is safe for
// concurrent use.
type Source struct {
	ca      *CA
	path    string
	ttl     time.Duration
	bundles *x509bundle.Set

	mu      sync.RWMutex
	svid    *x509svid.SVID // guarded by mu
	changed chan struct{}  // guarded by mu; closed and replaced by Rotate
}

var (
	_ x509svid.Source   = (*Source)(nil)
	_ x509bundle.Source = (*Source)(nil)
)

// NewSource returns an identity spiffe://<trust domain of ca>/<path> that
// trusts ca and the federated authorities.
func NewSource(ca *CA, path string, ttl time.Duration, federated ...*CA) (*Source, error) {
	s := &Source{ca: ca, path: path, ttl: ttl, bundles: x509bundle.NewSet(ca.Bundle()), changed: make(chan struct{})}
	for _, f := range federated {
		s.bundles.Add(f.Bundle())
	}
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
	return s.bundles.GetX509BundleForTrustDomain(td)
}

// Package identitytest stands in for SPIRE: a certificate authority per trust
// domain, an in-process source of X.509 SVIDs, and a Workload API over a unix
// socket. Tests use it, and the lab does.
//
// Nothing here renews by itself: an SVID lives for the ttl it was given, and
// Rotate replaces it. So a test decides when an identity changes or runs out.
// CA and Source take the time from time.Now, have no goroutines and no
// sockets, and work inside testing/synctest bubbles. WorkloadAPI does not: it
// has a real socket.
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

const (
	// caTTL outlives every test and a day at the lab.
	caTTL = 24 * time.Hour
	// backdate lets a process whose clock is a little behind accept a
	// certificate that was minted this second.
	backdate = 10 * time.Second
)

// CA is the certificate authority of one trust domain. It is safe for
// concurrent use.
type CA struct {
	trustDomain spiffeid.TrustDomain

	mu      sync.RWMutex
	roots   []root // in the bundle, the oldest first; guarded by mu
	signing root   // guarded by mu
}

type root struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a self-signed ECDSA P-256 authority that is valid for 24 hours.
// It fails if trustDomain is not a valid SPIFFE trust domain name.
func NewCA(trustDomain string) (*CA, error) {
	td, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return nil, fmt.Errorf("identitytest: trust domain %q: %w", trustDomain, err)
	}
	c := &CA{trustDomain: td}
	if err := c.Prepare(); err != nil {
		return nil, err
	}
	c.Activate()
	return c, nil
}

// Prepare puts a new root into the bundle. Nothing is signed with it before
// Activate, so that everybody can be given the bundle first.
func (c *CA) Prepare() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("identitytest: CA key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "CA of " + c.trustDomain.Name()},
		URIs:                  []*url.URL{c.trustDomain.ID().URL()},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caTTL),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	cert, err := sign(template, template, key, key)
	if err != nil {
		return fmt.Errorf("identitytest: CA certificate: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roots = append(c.roots, root{cert: cert, key: key})
	return nil
}

// Activate has SVIDs signed with the newest root from now on.
func (c *CA) Activate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signing = c.roots[len(c.roots)-1]
}

// Retire drops all roots but the newest from the bundle.
func (c *CA) Retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roots = slices.Clone(c.roots[len(c.roots)-1:])
}

// TrustDomain returns the trust domain that this authority speaks for.
func (c *CA) TrustDomain() spiffeid.TrustDomain { return c.trustDomain }

// Bundle returns the bundle that verifies what this authority signs, as it is now.
func (c *CA) Bundle() *x509bundle.Bundle {
	c.mu.RLock()
	defer c.mu.RUnlock()
	certs := make([]*x509.Certificate, 0, len(c.roots))
	for _, r := range c.roots {
		certs = append(certs, r.cert)
	}
	return x509bundle.FromX509Authorities(c.trustDomain, certs)
}

// SVID signs a new key for spiffe://<trust domain>/<path>, usable as client and
// as server, valid for ttl but never longer than the authority itself. A
// negative ttl gives an SVID that has already expired. It fails if path is not
// a valid SPIFFE path.
func (c *CA) SVID(path string, ttl time.Duration) (*x509svid.SVID, error) {
	id, err := spiffeid.FromPath(c.trustDomain, "/"+path)
	if err != nil {
		return nil, fmt.Errorf("identitytest: path %q: %w", path, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("identitytest: key of %s: %w", id, err)
	}
	c.mu.RLock()
	issuer := c.signing
	c.mu.RUnlock()
	now := time.Now()
	notAfter := now.Add(ttl)
	if notAfter.After(issuer.cert.NotAfter) {
		notAfter = issuer.cert.NotAfter
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: path},
		URIs:        []*url.URL{id.URL()},
		NotBefore:   now.Add(-backdate),
		NotAfter:    notAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := sign(template, issuer.cert, key, issuer.key)
	if err != nil {
		return nil, fmt.Errorf("identitytest: certificate of %s: %w", id, err)
	}
	return &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{cert}, PrivateKey: key}, nil
}

// sign leaves the serial number to crypto/x509, which picks a random one.
func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

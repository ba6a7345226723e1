package identity

import (
	"crypto/x509"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/credentials"
)

// tokenReuse is how long a token is given again to who asks for the same peer. It
// is far less than any lifetime that tokens are made with, and a signature is a
// fifth of what a refresh costs.
const tokenReuse = time.Second

// tokenKept is how long a peer that nobody asks for is remembered: longer than
// anyone may take between asking for it and getting its token.
const tokenKept = time.Minute

// TokenGenerator returns a generator of tokens signed by the current SVID. They
// are valid for maxLifetime, but not longer than the SVID or the certificate of
// the peer they are for.
//
// Calls for one peer within a second get the same token. A token is never older
// than one that was given before it: neighbours tell by the expiries which of two
// calls came first.
func (s *Source) TokenGenerator(maxLifetime time.Duration) token.GeneratorFunc {
	return newTokens(s, maxLifetime).get
}

// tokens are those of the last second.
type tokens struct {
	source x509svid.Source
	sign   token.GeneratorFunc

	// mu guards the following fields.
	mu    sync.Mutex
	last  map[string]*signed // by the peer's certificate
	swept time.Time
}

// signed is the last token for one peer.
type signed struct {
	// asked is when somebody last wanted one. Guarded by the lock of all.
	asked time.Time
	// mu is held while one is signed, so that none overtakes a later one. It
	// guards the following fields.
	mu      sync.Mutex
	by      *x509svid.SVID
	at      time.Time
	token   string
	expires time.Time
}

func newTokens(source x509svid.Source, maxLifetime time.Duration) *tokens {
	return &tokens{
		source: source,
		sign:   spiffejwt.TokenGeneratorFunc(source, maxLifetime),
		last:   make(map[string]*signed),
	}
}

func (t *tokens) get(peer credentials.AuthInfo) (string, time.Time, error) {
	e := t.entry(peer)
	e.mu.Lock()
	defer e.mu.Unlock()
	own, err := t.source.GetX509SVID()
	if err != nil {
		return "", time.Time{}, err
	}
	if now := time.Now(); e.by != own || now.Sub(e.at) >= tokenReuse {
		token, expires, err := t.sign(peer)
		if err != nil {
			return "", time.Time{}, err
		}
		e.by, e.at, e.token, e.expires = own, now, token, expires
	}
	return e.token, e.expires, nil
}

// entry returns what is kept for a peer, and forgets those who have not been asked
// for in a while.
func (t *tokens) entry(peer credentials.AuthInfo) *signed {
	var key []byte
	if certificate := certificateOf(peer); certificate != nil {
		key = certificate.Raw
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.last[string(key)]
	if !ok {
		t.sweep(now)
		e = new(signed)
		t.last[string(key)] = e
	}
	e.asked = now
	return e
}

// sweep is called with mu held.
func (t *tokens) sweep(now time.Time) {
	if now.Sub(t.swept) < tokenKept {
		return
	}
	t.swept = now
	for key, e := range t.last {
		if now.Sub(e.asked) >= tokenKept {
			delete(t.last, key)
		}
	}
}

// certificateOf returns the certificate of a peer, or nil without TLS.
func certificateOf(peer credentials.AuthInfo) *x509.Certificate {
	info, ok := peer.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	return info.State.PeerCertificates[0]
}

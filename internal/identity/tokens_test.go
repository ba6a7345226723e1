package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v4"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
)

const lifetime = 10 * time.Minute

// peers makes identities that live for ttl.
func peers(t *testing.T, ttl time.Duration, names ...string) []*identitytest.Source {
	ca, err := identitytest.NewCA("nsm.one")
	require.NoError(t, err)
	sources := make([]*identitytest.Source, 0, len(names))
	for _, name := range names {
		source, err := identitytest.NewSource(ca, name, ttl)
		require.NoError(t, err)
		sources = append(sources, source)
	}
	return sources
}

// seen is how a peer looks after a handshake.
func seen(t *testing.T, peer *identitytest.Source) credentials.AuthInfo {
	svid, err := peer.GetX509SVID()
	require.NoError(t, err)
	return credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{svid.Certificates[0]}}}
}

func TestTokenIsGivenAgainForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sources := peers(t, time.Hour, "proxy", "forwarder", "remote")
		own, forwarder, remote := sources[0], seen(t, sources[1]), seen(t, sources[2])
		tokens := newTokens(own, lifetime)
		get := func(peer credentials.AuthInfo) string {
			token, expires, err := tokens.get(peer)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(lifetime), expires, tokenReuse)
			return token
		}
		first := get(forwarder)
		time.Sleep(tokenReuse - time.Nanosecond)
		require.Equal(t, first, get(forwarder))
		require.NotEqual(t, first, get(remote), "made for another peer")
		require.NotEqual(t, first, get(nil), "made for no peer in particular")
		time.Sleep(time.Nanosecond)
		second := get(forwarder)
		require.NotEqual(t, first, second, "a second old")

		require.NoError(t, own.Rotate())
		third := get(forwarder)
		require.NotEqual(t, second, third, "signed by a certificate that is not ours any more")
		svid, err := own.GetX509SVID()
		require.NoError(t, err)
		_, err = jwt.ParseWithClaims(third, new(jwt.RegisteredClaims), func(*jwt.Token) (any, error) { return svid.PrivateKey.Public(), nil })
		require.NoError(t, err)

		require.NoError(t, sources[1].Rotate())
		require.NotEqual(t, third, get(seen(t, sources[1])), "the peer has another certificate")
	})
}

func TestTokenNeverOlderThanOneGivenBefore(t *testing.T) {
	t.Parallel()
	peer := seen(t, peers(t, time.Hour, "forwarder")[0])
	tokens := newTokens(peers(t, time.Hour, "proxy")[0], lifetime)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			var last time.Time
			for range 200 {
				tokens.expire(peer) // every call is the first of its second
				_, expires, err := tokens.get(peer)
				if err != nil || expires.Before(last) {
					t.Errorf("expires %s after one that expires %s: %v", expires, last, err)
				}
				last = expires
			}
		})
	}
	callers.Wait()
}

// expire makes the last token for a peer older than it may be.
func (t *tokens) expire(peer credentials.AuthInfo) {
	e := t.entry(peer)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = e.at.Add(-tokenReuse)
}

func TestTokensOfPeersThatLeftAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens(peers(t, time.Hour, "proxy")[0], lifetime)
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprint("forwarder-", i))
		}
		for _, source := range peers(t, time.Hour, names...) {
			_, _, err := tokens.get(seen(t, source))
			require.NoError(t, err)
		}
		require.Len(t, tokens.last, 20)
		time.Sleep(tokenKept)
		_, _, err := tokens.get(nil)
		require.NoError(t, err)
		require.Len(t, tokens.last, 1)
	})
}

func BenchmarkToken(b *testing.B) {
	ca, err := identitytest.NewCA("nsm.one")
	require.NoError(b, err)
	own, err := identitytest.NewSource(ca, "proxy", time.Hour)
	require.NoError(b, err)
	tokens := newTokens(own, lifetime)
	b.Run("signed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = tokens.sign(nil)
		}
	})
	for _, peers := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("given again/peers=%d", peers), func(b *testing.B) {
			tokens := newTokens(own, lifetime)
			infos := make([]credentials.AuthInfo, peers)
			for n := range infos {
				infos[n] = credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{{
					Raw: fmt.Appendf(nil, "certificate %d", n), NotAfter: time.Now().Add(time.Hour),
				}}}}
				tokens.entry(infos[n])
			}
			b.ReportAllocs()
			for b.Loop() {
				// The one of the last: what is asked for is whether the others matter.
				_, _, _ = tokens.get(infos[peers-1])
			}
		})
	}
}

package hop

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"

	"github.com/golang-jwt/jwt/v4"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A registry signs its token with the key that it has now. Our policies hold the
// token against the certificate of the connection's handshake, which is an older
// one when the registry has rotated since: stock proxies dial for each call and do
// not know the case. It shows in the answer, so the connection is renewed then, and
// the policies are given the certificate of the new handshake to judge that same
// answer by. Nothing is sent twice.

type nsClient struct{ client *Client }

// NewNetworkServiceRegistryClient is the element between a policy on the answers
// that come over c and those answers.
func NewNetworkServiceRegistryClient(c *Client) registry.NetworkServiceRegistryClient {
	return &nsClient{client: c}
}

func (n *nsClient) Register(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*registry.NetworkService, error) {
	return introduced(ctx, n.client, next.NetworkServiceRegistryClient(ctx).Register, ns, opts)
}

func (n *nsClient) Find(ctx context.Context, query *registry.NetworkServiceQuery, opts ...grpc.CallOption) (registry.NetworkServiceRegistry_FindClient, error) {
	return next.NetworkServiceRegistryClient(ctx).Find(ctx, query, opts...)
}

func (n *nsClient) Unregister(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	return introduced(ctx, n.client, next.NetworkServiceRegistryClient(ctx).Unregister, ns, opts)
}

type nseClient struct{ client *Client }

// NewNetworkServiceEndpointRegistryClient is NewNetworkServiceRegistryClient for
// endpoints.
func NewNetworkServiceEndpointRegistryClient(c *Client) registry.NetworkServiceEndpointRegistryClient {
	return &nseClient{client: c}
}

func (n *nseClient) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*registry.NetworkServiceEndpoint, error) {
	return introduced(ctx, n.client, next.NetworkServiceEndpointRegistryClient(ctx).Register, nse, opts)
}

func (n *nseClient) Find(ctx context.Context, query *registry.NetworkServiceEndpointQuery, opts ...grpc.CallOption) (registry.NetworkServiceEndpointRegistry_FindClient, error) {
	return next.NetworkServiceEndpointRegistryClient(ctx).Find(ctx, query, opts...)
}

func (n *nseClient) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	return introduced(ctx, n.client, next.NetworkServiceEndpointRegistryClient(ctx).Unregister, nse, opts)
}

// introduced makes a call, and introduces who has answered it.
func introduced[In, Out any](
	ctx context.Context, c *Client, call func(context.Context, In, ...grpc.CallOption) (Out, error), in In, opts []grpc.CallOption,
) (Out, error) {
	answerer := new(peer.Peer)
	answer, err := call(ctx, in, append(opts[:len(opts):len(opts)], grpc.Peer(answerer))...)
	if err == nil {
		c.introduce(ctx, answerer, opts)
	}
	return answer, err
}

// introduce gives those who asked for the peer of a call the far side as it is now,
// if it was another at the handshake.
func (c *Client) introduce(ctx context.Context, answerer *peer.Peer, opts []grpc.CallOption) {
	path := grpcmetadata.PathFromContext(ctx)
	next := int(path.Index) + 1
	if next >= len(path.PathSegments) || c.handle == nil {
		return
	}
	token := path.PathSegments[next].Token
	key := keyOf(answerer)
	if key == nil {
		return
	}
	if signed(token, key) {
		c.handle.hop.other.Store(nil)
		return
	}
	now := c.handle.renewed(ctx, token)
	if now == nil {
		return // whoever judges the answer refuses it
	}
	for _, opt := range opts {
		if asked, ok := opt.(grpc.PeerCallOption); ok {
			*asked.PeerAddr = *now
		}
	}
}

// renewed returns the peer that has signed the token, over a new connection if that
// of the current one's handshake has not. It returns nil if there is none.
func (h *Handle) renewed(ctx context.Context, token string) *peer.Peer {
	ctx, cancel := context.WithTimeout(ctx, h.hop.limit(ctx))
	defer cancel()
	var before *x509.Certificate // that of the connection that was renewed here
	for ctx.Err() == nil {
		current := h.hop.conn.Load()
		now, err := current.peer(ctx)
		certificate := certificateOf(now)
		switch {
		case signed(token, keyOf(now)):
			return now
		case h.hop.conn.Load() != current:
			continue // somebody else has found out
		case err != nil || certificate == nil:
			return nil
		case certificate.Equal(before):
			// It has not rotated, and who signs is somebody else: a registry behind
			// another's TLS must not cost a handshake for each call.
			h.hop.other.Store(certificate)
			return nil
		case before != nil || certificate.Equal(h.hop.other.Load()):
			return nil
		}
		before = certificate
		select {
		case <-h.pool.renew(current, "the far side's certificate has changed"):
		case <-ctx.Done():
		}
		if h.hop.conn.Load() == current {
			return nil
		}
	}
	return nil
}

// peer asks the far side who it was at the handshake.
func (c *conn) peer(ctx context.Context) (*peer.Peer, error) {
	answerer := new(peer.Peer)
	return answerer, c.check(ctx, aliveWithin, grpc.Peer(answerer))
}

func certificateOf(p *peer.Peer) *x509.Certificate {
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	return info.State.PeerCertificates[0]
}

func keyOf(p *peer.Peer) *ecdsa.PublicKey {
	certificate := certificateOf(p)
	if certificate == nil {
		return nil
	}
	key, _ := certificate.PublicKey.(*ecdsa.PublicKey)
	return key
}

// signed tells whether a token of the SDK's form is signed with the key. What it
// says is not looked at.
func signed(token string, key *ecdsa.PublicKey) bool {
	if key == nil {
		return false
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}), jwt.WithoutClaimsValidation())
	_, err := parser.Parse(token, func(*jwt.Token) (any, error) { return key, nil })
	return err == nil
}

package authz_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/chain"
	"github.com/networkservicemesh/sdk/pkg/tools/monitorconnection/next"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/authz"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// neighbour is a caller with a certificate.
type neighbour struct {
	*testing.T
	source *identitytest.Source
	name   string
}

func newNeighbour(t *testing.T, name string) *neighbour {
	ca, err := identitytest.NewCA("nsm.cluster1")
	require.NoError(t, err)
	source, err := identitytest.NewSource(ca, name, time.Hour)
	require.NoError(t, err)
	return &neighbour{T: t, source: source, name: name}
}

// context is that of a call which the neighbour makes over mutual TLS.
func (n *neighbour) context() context.Context {
	svid, err := n.source.GetX509SVID()
	require.NoError(n, err)
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{svid.Certificates[0]}}
	return peer.NewContext(n.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
}

// request is for the connection of that id, with a token of the neighbour.
func (n *neighbour) request(id string) *networkservice.NetworkServiceRequest {
	token, expires, err := spiffejwt.TokenGeneratorFunc(n.source, time.Minute)(nil)
	require.NoError(n, err)
	return &networkservice.NetworkServiceRequest{Connection: &networkservice.Connection{
		Id: "ours-" + id,
		Path: &networkservice.Path{Index: 1, PathSegments: []*networkservice.PathSegment{
			{Name: n.name, Id: id, Token: token, Expires: timestamppb.New(expires)}, {Name: "us", Id: "ours-" + id},
		}},
	}}
}

type behind struct{ err error }

func (b *behind) Request(_ context.Context, r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	return r.GetConnection(), b.err
}

func (b *behind) Close(context.Context, *networkservice.Connection) (*emptypb.Empty, error) {
	return new(emptypb.Empty), nil
}

func (b *behind) MonitorConnections(*networkservice.MonitorScopeSelector, networkservice.MonitorConnection_MonitorConnectionsServer) error {
	return nil
}

type stream struct {
	networkservice.MonitorConnection_MonitorConnectionsServer
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

func watch(m networkservice.MonitorConnectionServer, n *neighbour, id string) codes.Code {
	return status.Code(m.MonitorConnections(&networkservice.MonitorScopeSelector{
		PathSegments: []*networkservice.PathSegment{{Id: id}},
	}, stream{ctx: n.context()}))
}

func TestMonitor_OnlyWhoRequestedAConnectionWatchesIt(t *testing.T) {
	policies, err := authz.Load([]string{"etc/nsm/opa/monitor/.*.rego"})
	require.NoError(t, err)
	require.NotEmpty(t, policies)
	owners, b := authz.NewOwners(policies), new(behind)
	server := chain.NewNetworkServiceServer(authz.NewServer(owners), b)
	monitor := next.NewMonitorConnectionServer(authz.NewMonitorConnectionServer(owners), b)
	forwarder, other := newNeighbour(t, "forwarder"), newNeighbour(t, "other")

	require.Equal(t, codes.PermissionDenied, watch(monitor, forwarder, "a"), "nothing requested yet")
	for _, id := range []string{"a", "b"} {
		_, err = server.Request(forwarder.context(), forwarder.request(id))
		require.NoError(t, err)
	}
	require.Equal(t, codes.OK, watch(monitor, forwarder, "a"))
	require.Equal(t, codes.PermissionDenied, watch(monitor, other, "a"))
	require.Equal(t, codes.PermissionDenied, watch(monitor, forwarder, ""), "not everything at once")

	b.err = errors.New("no")
	_, err = server.Request(forwarder.context(), forwarder.request("a"))
	require.Error(t, err)
	require.Equal(t, codes.OK, watch(monitor, forwarder, "a"), "a failed refresh takes nothing away")
	require.Equal(t, codes.OK, watch(monitor, forwarder, "b"))

	_, err = server.Close(forwarder.context(), forwarder.request("a").GetConnection())
	require.NoError(t, err)
	require.Equal(t, codes.PermissionDenied, watch(monitor, forwarder, "a"))
	require.Equal(t, codes.OK, watch(monitor, forwarder, "b"))
}

func TestOwners_AConnectionBelongsToWhoRequestedItLast(t *testing.T) {
	policies, err := authz.Load([]string{"etc/nsm/opa/monitor/.*.rego"})
	require.NoError(t, err)
	owners, b := authz.NewOwners(policies), new(behind)
	server := chain.NewNetworkServiceServer(authz.NewServer(owners), b)
	monitor := next.NewMonitorConnectionServer(authz.NewMonitorConnectionServer(owners), b)
	before, after := newNeighbour(t, "before"), newNeighbour(t, "after")
	for _, n := range []*neighbour{before, after} {
		_, err = server.Request(n.context(), n.request("a"))
		require.NoError(t, err)
	}
	require.Equal(t, codes.PermissionDenied, watch(monitor, before, "a"))
	require.Equal(t, codes.OK, watch(monitor, after, "a"))
	_, err = server.Close(before.context(), before.request("a").GetConnection())
	require.NoError(t, err)
	require.Equal(t, codes.PermissionDenied, watch(monitor, after, "a"), "closed is closed, whoever did it")
}

func TestOwners_FollowTheLegs(t *testing.T) {
	policies, err := authz.Load([]string{"etc/nsm/opa/monitor/.*.rego"})
	require.NoError(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer wg.Wait()
	defer cancel()
	owners, b := authz.NewOwners(policies), new(behind)
	server := chain.NewNetworkServiceServer(leg.NewServer(leg.New(ctx, &wg)), authz.NewServer(owners), b)
	monitor := next.NewMonitorConnectionServer(authz.NewMonitorConnectionServer(owners), b)
	forwarder := newNeighbour(t, "forwarder")
	send := func(id, ours string) *networkservice.Connection {
		r := forwarder.request(id)
		r.Connection.Id, r.Connection.Path.PathSegments[1].Id = ours, ours
		conn, err := server.Request(forwarder.context(), r)
		require.NoError(t, err)
		return conn
	}
	send("a", "ours")
	require.Equal(t, codes.OK, watch(monitor, forwarder, "a"))
	conn := send("b", "ours")
	require.Equal(t, codes.OK, watch(monitor, forwarder, "b"))
	require.Equal(t, codes.PermissionDenied, watch(monitor, forwarder, "a"), "it comes another way by now")

	newer := send("b", "ours anew")
	_, err = server.Close(forwarder.context(), conn.Clone())
	require.NoError(t, err)
	require.Equal(t, codes.OK, watch(monitor, forwarder, "b"), "another leg has taken it over")
	_, err = server.Close(forwarder.context(), newer.Clone())
	require.NoError(t, err)
	require.Equal(t, codes.PermissionDenied, watch(monitor, forwarder, "b"))
}

func TestRequest_TokenOfAnotherIsRefused(t *testing.T) {
	policies, err := authz.Load([]string{"etc/nsm/opa/server/.*.rego"})
	require.NoError(t, err)
	require.NotEmpty(t, policies)
	us := newNeighbour(t, "us")
	server := chain.NewNetworkServiceServer(authz.NewGate(policies, spiffejwt.TokenGeneratorFunc(us.source, time.Minute)), new(behind))
	forwarder, thief := newNeighbour(t, "forwarder"), newNeighbour(t, "thief")

	_, err = server.Request(forwarder.context(), forwarder.request("a"))
	require.NoError(t, err)
	_, err = server.Request(thief.context(), forwarder.request("a"))
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	_, err = server.Close(thief.context(), forwarder.request("a").GetConnection())
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
}

func TestLoad(t *testing.T) {
	none, err := authz.Load(nil)
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = authz.Load([]string{"("})
	require.Error(t, err)
}

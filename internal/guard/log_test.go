package guard_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	registrynext "github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	monitornext "github.com/networkservicemesh/sdk/pkg/tools/monitorconnection/next"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/logtest"
)

// loud says something in each call and answers with an error.
type loud struct {
	registry.NetworkServiceEndpointRegistryServer
	say func(log.Logger)
	err error
}

func (l loud) Request(ctx context.Context, r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	l.say(log.FromContext(ctx))
	return r.GetConnection(), l.err
}

func (l loud) Close(ctx context.Context, _ *networkservice.Connection) (*emptypb.Empty, error) {
	l.say(log.FromContext(ctx))
	return new(emptypb.Empty), l.err
}

func (l loud) Find(_ *registry.NetworkServiceEndpointQuery, s registry.NetworkServiceEndpointRegistry_FindServer) error {
	l.say(log.FromContext(s.Context()))
	return l.err
}

func (l loud) MonitorConnections(
	_ *networkservice.MonitorScopeSelector, s networkservice.MonitorConnection_MonitorConnectionsServer,
) error {
	l.say(log.FromContext(s.Context()))
	return l.err
}

func silent(log.Logger) {}

func TestLog_OneLineOfManyFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := logtest.New()
		server := next.NewNetworkServiceServer(guard.NewServer(guard.NewLog(lines)), loud{say: silent})
		refuse := func(n int) {
			for range n {
				_, err := server.Request(t.Context(), new(networkservice.NetworkServiceRequest))
				require.Error(t, err)
			}
		}
		refuse(100)
		require.Len(t, lines.All("INFO"), 1)
		require.Contains(t, lines.All("INFO")[0], "Request refused: connection: missing")
		require.Len(t, lines.All("DEBUG"), 99)
		require.Len(t, lines.All("(repeat 99)"), 1)

		_, err := server.Close(t.Context(), nil)
		require.Error(t, err)
		require.Len(t, lines.All("INFO"), 2, "another call is another kind")

		time.Sleep(10 * time.Second)
		refuse(1)
		require.Len(t, lines.All("INFO"), 3)
		require.Contains(t, lines.All("INFO")[2], "(and 99 more like it)")

		refuse(3)
		time.Sleep(10 * time.Second)
		_, err = server.Close(t.Context(), nil)
		require.Error(t, err)
		require.Len(t, lines.All("INFO"), 5, "what was kept back is told of with another's line")
		require.Contains(t, lines.All("INFO")[3], "3 more like it: Request: InvalidArgument")
		refuse(1)
		require.Len(t, lines.All("INFO"), 5, "which counts as a line")
	})
}

func TestLog_TellsPeersApart(t *testing.T) {
	lines := logtest.New()
	server := next.NewNetworkServiceServer(guard.NewServer(guard.NewLog(lines)), loud{say: silent})
	for _, name := range []string{"one", "other", "one", "one"} {
		certificate := &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "domain", Path: "/" + name}}}
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{
			State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}},
		}})
		_, err := server.Request(ctx, new(networkservice.NetworkServiceRequest))
		require.Error(t, err)
	}
	require.Len(t, lines.All("INFO [peer:spiffe://domain/one]"), 1)
	require.Len(t, lines.All("DEBUG [peer:spiffe://domain/one]"), 2)
	require.Len(t, lines.All("[peer:spiffe://domain/other]"), 1)
}

func TestLog_WhatElementsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := logtest.New()
		server := next.NewNetworkServiceServer(guard.NewServer(guard.NewLog(lines)), loud{say: func(l log.Logger) {
			l.WithField("a", strings.Repeat("x", 5000)).Warnf("no token: %+v", fmt.Errorf("with %s", strings.Repeat("y", 5000)))
			l.Errorf("other: %v", "eyJhbGciOiJub25lIn0.c2VjcmV0.c2ln and \x1b[1m")
			l.Infof("changed")
			l.Object("request", "whole")
		}})
		for range 50 {
			_, err := server.Request(t.Context(), good())
			require.NoError(t, err)
		}
		require.Len(t, lines.All("WARN"), 1)
		require.Less(t, len(lines.All("WARN")[0]), 2200)
		require.Contains(t, lines.All("WARN")[0], "no token: with yyy")
		require.Len(t, lines.All("ERROR"), 1)
		require.Contains(t, lines.All("ERROR")[0], "other: (token) and \uFFFD[1m")
		require.Empty(t, lines.All("c2VjcmV0"))
		require.Len(t, lines.All("INFO changed"), 50, "changes are all told")
		require.Empty(t, lines.All("whole"))
	})
}

func TestLog_BoundsItsKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := logtest.New()
		n := 0
		server := next.NewNetworkServiceServer(guard.NewServer(guard.NewLog(lines)), loud{say: func(l log.Logger) {
			n++
			l.Warnf(fmt.Sprintf("format %d", n))
		}})
		for range 5000 {
			_, err := server.Request(t.Context(), good())
			require.NoError(t, err)
		}
		require.Len(t, lines.All("WARN"), 1025)
		time.Sleep(10 * time.Second)
		_, err := server.Request(t.Context(), good())
		require.NoError(t, err)
		require.Len(t, lines.All("more like it: lines of other kinds"), 1)
	})
}

func TestLog_IsInTheContextOfAllCalls(t *testing.T) {
	lines := logtest.New()
	l := guard.NewLog(lines)
	behind := loud{say: func(l log.Logger) { l.Warn("here") }, err: errors.New("failed behind")}
	_, err := next.NewNetworkServiceServer(guard.NewServer(l), behind).Close(t.Context(), good().GetConnection())
	require.Error(t, err)
	err = monitornext.NewMonitorConnectionServer(guard.NewMonitorConnectionServer(l), behind).
		MonitorConnections(nil, monitorStream{stream: stream{ctx: t.Context()}})
	require.Error(t, err)
	err = registrynext.NewNetworkServiceEndpointRegistryServer(guard.NewNetworkServiceEndpointRegistryServer(l), behind).
		Find(&registry.NetworkServiceEndpointQuery{NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: "nse"}},
			nseStream{stream: stream{ctx: t.Context()}})
	require.Error(t, err)
	require.Len(t, lines.All("here"), 3, "the first, and two repeats")
	require.Len(t, lines.All("WARN here"), 1)
	require.Len(t, lines.All("Close failed: failed behind"), 1)
	require.Len(t, lines.All("MonitorConnections failed: failed behind"), 1)
	require.Len(t, lines.All("[endpoint:nse] NetworkServiceEndpointRegistry/Find failed: failed behind"), 1)
}

func TestLog_StackOfAPanicIsWhole(t *testing.T) {
	lines := logtest.New()
	server := next.NewNetworkServiceServer(guard.NewServer(guard.NewLog(lines)), &behind{panics: true})
	_, err := server.Request(t.Context(), good())
	require.Equal(t, codes.Internal, status.Code(err))
	require.Len(t, lines.All("panic in Request: on request"), 1)
	require.Contains(t, lines.All("panic in Request")[0], "TestLog_StackOfAPanicIsWhole")
}

func TestLog_OfManyAtOnce(t *testing.T) {
	lines := logtest.New()
	l := guard.NewLog(lines)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for i := range 500 {
				l.Warnf(fmt.Sprintf("format %d", i%7))
			}
		})
	}
	callers.Wait()
	require.Len(t, lines.All("WARN"), 7)
	require.Len(t, lines.All(""), 4000)
}

func TestRegister_TokenBesideItKeepsToTheLimits(t *testing.T) {
	server := registrynext.NewNetworkServiceEndpointRegistryServer(
		guard.NewNetworkServiceEndpointRegistryServer(quietly()), new(behind))
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("nsm-client-token-expires", strings.Repeat("x", 30<<10)))
	_, err := server.Register(ctx, &registry.NetworkServiceEndpoint{Name: "nse"})
	require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "header nsm-client-token-expires: not a time")
}

package floor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/sandbox"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, wire *lbtest.Wire, addr string, register func(*grpc.Server)) {
	server := grpc.NewServer()
	register(server)
	listener := wire.Listen(addr)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
}

func dial(t *testing.T, wire *lbtest.Wire, addr string) *grpc.ClientConn {
	cc, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithContextDialer(wire.Dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cc.Close()) })
	return cc
}

func TestPassesOnSignsAndTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire, far := lbtest.NewWire(), lbtest.NewPeer("far")
		serve(t, wire, "far", far.Register)
		upstream := dial(t, wire, "far")
		serve(t, wire, "floor", func(s *grpc.Server) { Register(s, sandbox.GenerateTestToken, upstream) })
		cc := dial(t, wire, "floor")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := networkservice.NewMonitorConnectionClient(cc).MonitorConnections(ctx,
			&networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: "1"}}})
		require.NoError(t, err)
		event, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER, event.GetType())

		client := networkservice.NewNetworkServiceClient(cc)
		request := &networkservice.NetworkServiceRequest{Connection: &networkservice.Connection{Id: "1", Path: &networkservice.Path{
			Index: 1, PathSegments: []*networkservice.PathSegment{{Id: "0", Name: "client"}, {Id: "1", Name: "nsmgr"}},
		}}}
		conn, err := client.Request(ctx, request)
		require.NoError(t, err)
		require.EqualValues(t, 1, conn.GetPath().GetIndex())
		require.Equal(t, "1", conn.GetId())
		own := conn.GetNextPathSegment()
		require.NotEmpty(t, own.GetToken())
		require.True(t, own.GetExpires().AsTime().After(time.Now()))

		event, err = stream.Recv()
		require.NoError(t, err)
		require.Equal(t, networkservice.ConnectionEventType_UPDATE, event.GetType())
		told := event.GetConnections()[own.GetId()]
		require.Equal(t, networkservice.State_UP, told.GetState())
		require.EqualValues(t, 2, told.GetPath().GetIndex())

		again, err := client.Request(ctx, &networkservice.NetworkServiceRequest{Connection: conn.Clone()})
		require.NoError(t, err)
		require.Equal(t, own.GetId(), again.GetNextPathSegment().GetId(), "refreshed in place")
		require.Len(t, far.Conns(), 1)

		_, err = client.Close(ctx, again)
		require.NoError(t, err)
		require.Empty(t, far.Conns())

		_, err = client.Request(ctx, &networkservice.NetworkServiceRequest{Connection: &networkservice.Connection{}})
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	})
}

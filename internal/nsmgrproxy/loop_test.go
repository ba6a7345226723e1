package nsmgrproxy_test

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

const backName = "back@cluster1"

// middle is another domain on the path: a proxy of our own kind with another name,
// through which a connection to the endpoint comes back under another name.
type middle struct {
	networkservice.NetworkServiceServer
	networkservice.MonitorConnectionServer
	rename   bool
	mu       sync.Mutex
	requests int
}

// withTokens gives what comes the tokens that mTLS connections would carry.
func withTokens(ctx context.Context) context.Context {
	out, _ := metadata.FromOutgoingContext(withToken(ctx, tokenTime))
	in, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewIncomingContext(ctx, metadata.Join(in, out))
}

func (m *middle) Request(ctx context.Context, r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	m.mu.Lock()
	m.requests++
	m.mu.Unlock()
	before := r.GetConnection().GetNetworkServiceEndpointName()
	if m.rename {
		r.GetConnection().NetworkServiceEndpointName = backName
	}
	conn, err := m.NetworkServiceServer.Request(withTokens(ctx), r)
	if err != nil {
		return nil, err
	}
	conn.NetworkServiceEndpointName = before
	return conn, nil
}

func (m *middle) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	if m.rename {
		conn.NetworkServiceEndpointName = backName
	}
	return m.NetworkServiceServer.Close(ctx, conn)
}

// back starts the other domain at the address where the endpoint is said to be.
func (w *world) back(rename bool) (m *middle, stop func()) {
	elsewhere, nothing := newFakeRegistry(), newFakeRegistry()
	elsewhere.set(backName, "tcp://"+proxyAddr)
	elsewhere.set(endpointName, "tcp://"+proxyAddr)
	stopRegistry, stopNothing := w.serve("10.1.1.2:5005", elsewhere.register), w.serve("10.1.1.2:5002", nothing.register)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	chain := nsmgrproxy.NewServer(ctx,
		&url.URL{Scheme: "tcp", Host: "10.1.1.2:5002"}, &url.URL{Scheme: "tcp", Host: "10.1.1.2:5005"}, testToken,
		nsmgrproxy.WithName("middle"), nsmgrproxy.WithListenOn(&url.URL{Scheme: "tcp", Host: otherAddr}),
		nsmgrproxy.WithDialOptions(w.dialOptions()...), nsmgrproxy.WithMapIPFilePath(""), nsmgrproxy.WithWaitGroup(&wg))
	m = &middle{NetworkServiceServer: chain, MonitorConnectionServer: chain, rename: rename}
	stopMiddle := w.serve(otherAddr, func(s *grpc.Server) {
		networkservice.RegisterNetworkServiceServer(s, m)
		networkservice.RegisterMonitorConnectionServer(s, m)
	}, nsmgrproxy.ServerOptions()...)
	w.remote.set(endpointName, "tcp://"+otherAddr)
	return m, func() {
		w.stop()
		cancel()
		synctest.Wait()
		stopMiddle()
		wg.Wait()
		stopRegistry()
		stopNothing()
	}
}

// A domain that is visited twice has its proxy twice in the path, as two legs that
// have nothing to do with each other. A subscriber's selector fits both, as in stock;
// neighbours take what is of the segment next to theirs.
func TestLoop_TwiceInOnePath(t *testing.T) {
	inBubble(t, func(w *world) {
		_, stop := w.back(true)
		defer stop()
		w.local.set("back", "tcp://"+farAddr)
		s := w.subscribe(1)
		defer s.end()
		conn := w.establish(1)
		var names []string
		for _, segment := range conn.GetPath().GetPathSegments() {
			names = append(names, segment.GetName())
		}
		require.Equal(w, []string{"client", "nsmgr", "forwarder", "proxy", "middle", "proxy", "far-6", "far-7"}, names)
		require.Equal(w, "back", w.far.Requests()[0].GetConnection().GetNetworkServiceEndpointName())
		first, second := conn.GetPath().GetPathSegments()[3].GetId(), conn.GetPath().GetPathSegments()[5].GetId()
		require.NotEqual(w, first, second)
		require.Equal(w, map[string]string{first: "UPDATE UP ", second: "UPDATE UP "}, s.told())

		for range 3 {
			time.Sleep(2 * time.Minute)
			refreshed, err := w.request(again(conn))
			require.NoError(w, err)
			require.Equal(w, ids(conn), ids(refreshed))
			require.Equal(w, map[string]string{first: "UPDATE UP ", second: "UPDATE UP "}, s.told())
			conn = refreshed
		}
		require.Len(w, w.far.Requests(), 4)

		w.wire.Cut(farAddr)
		w.wire.Cut(otherAddr)
		time.Sleep(5 * time.Second)
		require.Empty(w, s.told(), "a cut is not seen")
		w.far.Say(setState(networkservice.State_DOWN))
		require.Equal(w, map[string]string{first: "UPDATE DOWN ", second: "UPDATE DOWN "}, s.told())
		conn, err := w.request(again(conn))
		require.NoError(w, err)
		require.Equal(w, map[string]string{first: "UPDATE UP ", second: "UPDATE UP "}, s.told())

		require.NoError(w, w.close(conn))
		require.Len(w, w.far.Closes(), 1)
		require.Empty(w, w.far.Conns())
		require.Equal(w, map[string]string{first: "DELETE UP ", second: "DELETE UP "}, s.told())
	})
}

// told returns what came since the last call, by connection.
func (s *subscriber) told() map[string]string {
	s.Helper()
	told := make(map[string]string)
	for _, event := range s.next() {
		for id, conn := range event.GetConnections() {
			told[id] += event.GetType().String() + " " + conn.GetState().String() + " "
		}
	}
	return told
}

func TestLoop_WithoutEndIsRefused(t *testing.T) {
	inBubble(t, func(w *world) {
		m, stop := w.back(false)
		defer stop()
		began := time.Now()
		_, err := w.request(newRequest(1))
		require.Equal(w, codes.FailedPrecondition, status.Code(err), "%v", err)
		require.Contains(w, err.Error(), "comes round again")
		require.Less(w, time.Since(began), time.Second)
		require.LessOrEqual(w, m.requests, 8, "once for each visit")
		synctest.Wait()
		require.Empty(w, w.far.Requests())

		// What has been refused is looked up again.
		time.Sleep(5 * time.Second)
		w.remote.set(endpointName, "tcp://"+farAddr)
		_, err = w.request(newRequest(1))
		require.NoError(w, err)
	})
}

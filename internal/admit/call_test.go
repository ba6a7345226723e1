package admit

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// named is a handshake in which everybody is who they say first.
type named struct {
	credentials.TransportCredentials
}

func (named) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	name := make([]byte, 1)
	if _, err := io.ReadFull(raw, name); err != nil {
		return nil, nil, err
	}
	return raw, credentials.TLSInfo{SPIFFEID: &url.URL{Scheme: "spiffe", Host: "test", Path: "/" + string(name)}}, nil
}

// server is an admission with a service behind it, in a bubble.
type server struct {
	*testing.T
	admission *Admission
	wire      *lbtest.Wire
	handle    func(ctx context.Context, text string) error
}

func inBubble(t *testing.T, limit int64, f func(s *server)) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{T: t, admission: New(limit, log.Empty()), wire: lbtest.NewWire(), handle: func(context.Context, string) error { return nil }}
		g := grpc.NewServer(append(s.admission.ServerOptions(), grpc.Creds(s.admission.Credentials(named{insecure.NewCredentials()})))...)
		handler := func(_ any, ss grpc.ServerStream) error {
			in := new(wrapperspb.StringValue)
			if err := ss.RecvMsg(in); err != nil {
				return err
			}
			if err := s.handle(ss.Context(), in.GetValue()); err != nil {
				return err
			}
			return ss.SendMsg(in)
		}
		g.RegisterService(&grpc.ServiceDesc{ServiceName: "test", Streams: []grpc.StreamDesc{
			{StreamName: "Call", ClientStreams: true, Handler: handler},
		}}, nil)
		g.RegisterService(&grpc.ServiceDesc{ServiceName: "connection.MonitorConnection", Streams: []grpc.StreamDesc{
			{StreamName: "MonitorConnections", ServerStreams: true, Handler: handler},
		}}, nil)
		done := make(chan error, 1)
		listener := s.wire.Listen("here")
		go func() { done <- g.Serve(listener) }()
		defer func() { // also where f has failed
			g.Stop()
			require.NoError(t, <-done)
			synctest.Wait()
			require.Zero(t, s.admission.room.loose, "everything is released")
			require.Empty(t, s.admission.room.holders)
		}()
		f(s)
	})
}

func (s *server) dial(name string) *grpc.ClientConn {
	cc, err := grpc.NewClient("passthrough:here", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := s.wire.Dial(ctx, addr)
			if err == nil {
				_, err = io.WriteString(conn, name)
			}
			return conn, err
		}))
	require.NoError(s, err)
	return cc
}

func invoke(cc *grpc.ClientConn, text string) error {
	return cc.Invoke(context.Background(), "/test/Call", wrapperspb.String(text), new(wrapperspb.StringValue))
}

func (s *server) used() int64 {
	synctest.Wait()
	s.admission.room.mu.Lock()
	defer s.admission.room.mu.Unlock()
	return s.admission.room.loose
}

func TestCallIsThereUntilItsHandlerHasReturned(t *testing.T) {
	inBubble(t, 100<<20, func(s *server) {
		release, ends := make(chan struct{}), make(chan func(), 1)
		s.handle = func(ctx context.Context, _ string) error {
			ends <- Behind(ctx)
			<-release
			return nil
		}
		cc := s.dial("a")
		defer func() { _ = cc.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := cc.Invoke(ctx, "/test/Call", wrapperspb.String("x"), new(emptypb.Empty))
		require.Equal(s, codes.DeadlineExceeded, status.Code(err))
		require.Greater(s, s.used(), int64(connectionCost+requestCost), "its caller has left, it has not")
		close(release)
		require.GreaterOrEqual(s, s.used(), int64(connectionCost+requestCost), "what goes on behind it has not ended")
		(<-ends)()
		require.Equal(s, int64(connectionCost), s.used())
	})
}

func TestCallsAreRefusedOneByOne(t *testing.T) {
	inBubble(t, 10<<20, func(s *server) {
		release := make(chan struct{})
		s.handle = func(context.Context, string) error { <-release; return nil }
		a, b := s.dial("a"), s.dial("b")
		defer func() { _ = a.Close() }()
		defer func() { _ = b.Close() }()
		results := make(chan error, 200)
		for range cap(results) {
			go func() { results <- invoke(a, "x") }()
		}
		time.Sleep(time.Minute) // a connection with refused calls is read from slowly
		refused := len(results)
		require.Greater(s, refused, 100)
		for range refused {
			err := <-results
			require.Equal(s, codes.ResourceExhausted, status.Code(err))
			require.ErrorContains(s, err, `for another call of "spiffe://test/a"`)
		}
		go func() { results <- invoke(b, "x") }()
		synctest.Wait()
		require.Empty(s, results, "another one's call is under way")
		close(release)
		for range cap(results) - refused + 1 {
			require.NoError(s, <-results)
		}
		require.NoError(s, invoke(a, "x"), "there is room again")
		require.Equal(s, codes.Unimplemented, status.Code(a.Invoke(context.Background(), "/test/None", new(emptypb.Empty), new(emptypb.Empty))))
	})
}

// A client's nsmgr or a remote proxy of stock make has all its legs on one connection, and
// after an outage they come at once.
func TestAllLegsOfAPeerMayComeAtOnce(t *testing.T) {
	const legs = 1_000
	inBubble(t, 100<<20, func(s *server) {
		var busy, most atomic.Int64
		s.handle = func(context.Context, string) error {
			if n := busy.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(200 * time.Millisecond)
			busy.Add(-1)
			return nil
		}
		cc := s.dial("a")
		defer func() { _ = cc.Close() }()
		for range legs {
			place := s.admission.room.openLeg("spiffe://test/a")
			require.NotNil(s, place)
			defer place.Leave()
		}
		began := time.Now()
		results := make(chan error, legs)
		for range legs {
			go func() { results <- invoke(cc, "x") }()
		}
		for range legs {
			require.NoError(s, <-results)
		}
		require.Less(s, time.Since(began), maxWaiting/2)
		require.Less(s, most.Load(), int64(legs/2), "not all of them at a time")
	})
}

func TestCallThatPanicsIsReleased(t *testing.T) {
	inBubble(t, 100<<20, func(s *server) {
		s.handle = func(_ context.Context, text string) (err error) {
			defer func() { err = status.Error(codes.Internal, fmt.Sprint(recover())) }()
			panic(text)
		}
		cc := s.dial("a")
		defer func() { _ = cc.Close() }()
		require.ErrorContains(s, invoke(cc, "x"), "x")
		require.Equal(s, int64(connectionCost), s.used())
	})
}

func TestCallWithoutAMessageIsReleasedWithItsCaller(t *testing.T) {
	inBubble(t, 100<<20, func(s *server) {
		cc := s.dial("a")
		defer func() { _ = cc.Close() }()
		for _, method := range []string{"/test/Call", monitorMethod, "/test/None"} {
			ctx, cancel := context.WithCancel(context.Background())
			_, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			require.NoError(s, err)
			if method != "/test/None" {
				require.Greater(s, s.used(), int64(connectionCost), method)
			}
			cancel()
			require.Equal(s, int64(connectionCost), s.used(), method)
		}
	})
}

func TestSubscriptionsAreRefused(t *testing.T) {
	inBubble(t, 5<<20, func(s *server) {
		release := make(chan struct{})
		s.handle = func(context.Context, string) error { <-release; return nil }
		cc := s.dial("a")
		defer func() { _ = cc.Close() }()
		watch := func(text string) error {
			stream, err := cc.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, monitorMethod)
			require.NoError(s, err)
			_ = stream.SendMsg(wrapperspb.String(text)) // the answer says it
			require.NoError(s, stream.CloseSend())
			return stream.RecvMsg(new(wrapperspb.StringValue))
		}
		results := make(chan error, 100)
		for range cap(results) {
			go func() { results <- watch("x") }()
		}
		time.Sleep(time.Minute)
		refused := len(results)
		require.InDelta(s, 100-(3<<19-connectionCost)/streamCost, refused, 1)
		require.LessOrEqual(s, s.used(), int64(3<<19))
		for range refused {
			require.Equal(s, codes.ResourceExhausted, status.Code(<-results))
		}
		close(release)
		for range cap(results) - refused {
			require.NoError(s, <-results)
		}
		synctest.Wait()
		require.NoError(s, watch("x"), "there is room again")
		require.Equal(s, codes.ResourceExhausted, status.Code(watch(strings.Repeat("x", 1<<20))), "not for what takes four times its size")
		require.Equal(s, int64(connectionCost), s.used())
	})
}

func TestConnectionsAreRefused(t *testing.T) {
	inBubble(t, 10<<20, func(s *server) {
		var conns []*grpc.ClientConn
		defer func() {
			for _, cc := range conns {
				_ = cc.Close()
			}
		}()
		connect := func(name string) error {
			cc := s.dial(name)
			conns = append(conns, cc)
			return invoke(cc, "x")
		}
		for connect("a") == nil {
		}
		require.Greater(s, len(conns), 30)
		require.NoError(s, connect("b"), "others come")
		require.LessOrEqual(s, s.used(), s.admission.room.most)
	})
}

func TestUnreadBytesHoldTheirConnectionUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(5 << 20)
		client, peer := net.Pipe()
		defer func() { _ = client.Close() }()
		c, ok := r.connect(peer, "a")
		require.True(t, ok)
		c.unread = 20 // as many as it takes: gRPC lets one have little more than the largest message
		go func() {
			for b := make([]byte, 32*kib); ; {
				if _, err := client.Write(b); err != nil {
					return
				}
			}
		}()
		began := time.Now()
		b, total := make([]byte, 16*kib), 0
		var err error
		for err == nil {
			var n int
			n, err = c.Read(b)
			total += n
		}
		require.ErrorIs(t, err, errStalled)
		require.Equal(t, stallTimeout, time.Since(began))
		require.InDelta(t, 3<<19-connectionCost+20*usualMessage, total, 32*kib)
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		require.Zero(t, r.loose)
	})
}

func TestWhoDoesNotReadIsNotReadFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(5 << 20)
		client, peer := net.Pipe()
		c, ok := r.connect(peer, "a")
		require.True(t, ok)
		go func() { _, _ = c.Write([]byte("answer")) }()
		time.Sleep(2 * stuckAfter)
		read := make(chan error, 1)
		go func() { _, err := c.Read(make([]byte, 1)); read <- err }()
		_ = client.SetWriteDeadline(time.Now().Add(time.Second))
		_, err := client.Write([]byte("x"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "no more calls come")
		_ = client.SetWriteDeadline(time.Time{})
		_, err = io.ReadFull(client, make([]byte, 6))
		require.NoError(t, err)
		_, err = client.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, <-read)

		go func() { _, _ = c.Write([]byte("answer")) }()
		time.Sleep(2 * stuckAfter)
		go func() { _, err := c.Read(make([]byte, 1)); read <- err }()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.Error(t, <-read, "nor is one that has gone waited for")
		require.False(t, (&call{conn: c, held: amount{bytes: requestCost}}).begin(), "its connection has gone")
		require.Zero(t, r.loose)
		require.Empty(t, r.holders)
	})
}

func TestMessageThatNeverComesDoesNotPayForOthers(t *testing.T) {
	inBubble(t, 100<<20, func(s *server) {
		cc := s.dial("a")
		defer func() { _ = cc.Close() }()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/test/Call")
		require.NoError(s, err)
		for i := range 1000 {
			header := metadata.AppendToOutgoingContext(context.Background(), "token", strings.Repeat(strconv.Itoa(i), 300))
			require.NoError(s, cc.Invoke(header, "/test/Call", wrapperspb.String("x"), new(wrapperspb.StringValue)))
		}
		require.LessOrEqual(s, s.used(), int64(connectionCost+requestCost+incomplete))
	})
}

func TestCallsThatAreNotWaitedForAreNotOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conn{done: make(chan struct{})}
		c.undecided.Store(2 * maxUndecided)
		began := time.Now()
		c.decided()
		require.Equal(t, stallPause, time.Since(began))
		for range 2 * maxUndecided {
			c.decide()
		}
		c.undecided.Add(maxUndecided)
		c.decided()
		require.Equal(t, 2*stallPause, time.Since(began), "those that come next are counted")
	})
}

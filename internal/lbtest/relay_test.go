package lbtest_test

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to happen.
const patience = 5 * time.Second

// echo answers every byte with the same byte and tells how connections ended.
type echo struct {
	net.Listener
	ends chan error
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &echo{Listener: listener, ends: make(chan error, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, err := io.Copy(conn, conn)
				_ = conn.Close()
				e.ends <- err
			}()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return e
}

func startRelay(t *testing.T, target string, opts ...lbtest.Option) *lbtest.Relay {
	t.Helper()
	relay, err := lbtest.Listen("127.0.0.1:0", target, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, relay.Close()) })
	return relay
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, len(text))
	_, err = io.ReadFull(conn, buf)
	require.NoError(t, err)
	require.Equal(t, text, string(buf))
}

// endOf returns how the stream ended; a stream that has not ended by then
// returns a timeout.
func endOf(t *testing.T, conn net.Conn, within time.Duration) error {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(within)))
	_, err := conn.Read(make([]byte, 1))
	return err
}

func requireTimeout(t *testing.T, err error) {
	t.Helper()
	var netErr net.Error
	require.True(t, errors.As(err, &netErr) && netErr.Timeout(), "want silence, got %v", err)
}

// requireReset connects and wants a RST, which may come before connect returns.
func requireReset(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		err = endOf(t, conn, patience)
		_ = conn.Close()
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestPayloadPassesAndHalfCloseWorks(t *testing.T) {
	server := startEcho(t)
	relay := startRelay(t, server.Addr().String())
	conn := dial(t, relay.Addr())
	say(t, conn, "hello")
	require.Equal(t, lbtest.Stats{Accepted: 1, Open: 1}, relay.Stats())

	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	require.ErrorIs(t, endOf(t, conn, patience), io.EOF)
	require.NoError(t, <-server.ends)
	require.Eventually(t, func() bool { return relay.Stats().Open == 0 }, patience, time.Millisecond)
	require.Zero(t, relay.Stats().Cuts, "an end of the client's own is no cut")
}

func TestIdleCutsBothSidesWithFIN(t *testing.T) {
	const limit = 150 * time.Millisecond
	server := startEcho(t)
	reasons := make(chan string, 4)
	relay := startRelay(t, server.Addr().String(), lbtest.WithIdle(limit),
		lbtest.WithOnCut(func(reason string) { reasons <- reason }))
	conn := dial(t, relay.Addr())

	// Payload at half the limit keeps the connection for several limits.
	for range 8 {
		say(t, conn, "x")
		time.Sleep(limit / 2)
	}
	require.Zero(t, relay.Stats().Cuts)

	say(t, conn, "x")
	quiet := time.Now()
	require.ErrorIs(t, endOf(t, conn, patience), io.EOF, "a FIN, no RST")
	require.GreaterOrEqual(t, time.Since(quiet), limit-10*time.Millisecond)
	require.NoError(t, <-server.ends, "a FIN on the other side, too")
	require.Equal(t, "idle 150ms", <-reasons)
	require.Empty(t, reasons)
	require.Equal(t, int64(1), relay.Stats().Cuts)
}

func TestKeepalivesAreNoPayload(t *testing.T) {
	server := startEcho(t)
	// A second is the shortest interval the kernel takes.
	relay := startRelay(t, server.Addr().String(), lbtest.WithIdle(1500*time.Millisecond))
	conn := dial(t, relay.Addr())
	require.NoError(t, conn.(*net.TCPConn).SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: time.Second, Interval: time.Second, Count: 9,
	}))
	say(t, conn, "x")
	require.ErrorIs(t, endOf(t, conn, patience), io.EOF)
	require.Equal(t, int64(1), relay.Stats().Cuts)
}

func TestSetIdleReachesOpenConnections(t *testing.T) {
	server := startEcho(t)
	relay := startRelay(t, server.Addr().String())
	conn := dial(t, relay.Addr())
	say(t, conn, "x")
	requireTimeout(t, endOf(t, conn, 50*time.Millisecond))

	relay.SetIdle(time.Hour)
	requireTimeout(t, endOf(t, conn, 50*time.Millisecond))
	relay.SetIdle(time.Millisecond)
	require.ErrorIs(t, endOf(t, conn, patience), io.EOF)
}

func TestCutAllCountsAndMayBeCalledBack(t *testing.T) {
	server := startEcho(t)
	var relay *lbtest.Relay
	var seen atomic.Int64
	relay = startRelay(t, server.Addr().String(), lbtest.WithOnCut(func(string) {
		seen.Store(relay.Stats().Cuts) // a lock held here would hang
		relay.SetIdle(0)
	}))
	for range 3 {
		say(t, dial(t, relay.Addr()), "x")
	}
	require.Equal(t, 3, relay.CutAll())
	require.Equal(t, int64(3), seen.Load())
	require.Eventually(t, func() bool { return relay.Stats().Open == 0 }, patience, time.Millisecond)
	require.Zero(t, relay.CutAll(), "what has been cut is not cut again")
	require.Equal(t, lbtest.Stats{Accepted: 3, Cuts: 3}, relay.Stats())
	say(t, dial(t, relay.Addr()), "again")
}

func TestRefuse(t *testing.T) {
	server := startEcho(t)
	accepts := make(chan struct{}, 4)
	relay := startRelay(t, server.Addr().String(), lbtest.WithOnAccept(func() { accepts <- struct{}{} }))
	before := dial(t, relay.Addr())
	say(t, before, "x")
	relay.SetRefuse(true)

	requireReset(t, relay.Addr())
	say(t, before, "still there")

	relay.SetRefuse(false)
	say(t, dial(t, relay.Addr()), "x")
	require.Len(t, accepts, 3)
	require.Zero(t, relay.Stats().Cuts)
}

func TestBlackholeSwallowsAndKeepsSockets(t *testing.T) {
	server := startEcho(t)
	relay := startRelay(t, server.Addr().String())
	lossy, quiet := dial(t, relay.Addr()), dial(t, relay.Addr())
	say(t, lossy, "x")
	say(t, quiet, "x")

	relay.SetBlackhole(true)
	relay.SetIdle(time.Millisecond) // must not cut: nobody is told
	_, err := io.WriteString(lossy, "lost")
	require.NoError(t, err)
	requireTimeout(t, endOf(t, lossy, 100*time.Millisecond))
	inHole := dial(t, relay.Addr())
	_, err = io.WriteString(inHole, "lost")
	require.NoError(t, err)
	requireTimeout(t, endOf(t, inHole, 100*time.Millisecond))
	require.Equal(t, 3, relay.Stats().Open)

	relay.SetIdle(0)
	relay.SetBlackhole(false)
	say(t, quiet, "nothing was lost here")
	_, err = io.WriteString(lossy, "after")
	require.NoError(t, err)
	requireTimeout(t, endOf(t, lossy, 100*time.Millisecond))
	require.Empty(t, server.ends, "the target was told of an end")
	require.Equal(t, 3, relay.CutAll())
	require.ErrorIs(t, endOf(t, lossy, patience), io.EOF)
}

// Each way can be swallowed without the other.
func TestBlackholeOneWay(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	relay := startRelay(t, listener.Addr().String())
	open := func() (down, up net.Conn) {
		down = dial(t, relay.Addr())
		up, err := listener.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = up.Close() })
		return down, up
	}
	send := func(from, to net.Conn, text string) {
		_, err := io.WriteString(from, text)
		require.NoError(t, err)
		require.NoError(t, to.SetReadDeadline(time.Now().Add(patience)))
		got := make([]byte, len(text))
		_, err = io.ReadFull(to, got)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	for _, way := range []lbtest.Way{lbtest.Upwards, lbtest.Downwards} {
		down, up := open()
		relay.SetBlackholeWay(way, true)
		relay.SetIdle(time.Millisecond) // must not cut: nobody is told
		inHole, behind := open()
		for _, pair := range [][2]net.Conn{{down, up}, {inHole, behind}} {
			from, to := pair[0], pair[1]
			if way == lbtest.Downwards {
				from, to = to, from
			}
			_, err := io.WriteString(from, "lost")
			require.NoError(t, err)
			requireTimeout(t, endOf(t, to, 100*time.Millisecond))
			send(to, from, "passes")
		}
		relay.SetIdle(0)
		relay.SetBlackholeWay(way, false)
		require.Equal(t, lbtest.Stats{Accepted: relay.Stats().Accepted, Cuts: relay.Stats().Cuts, Open: 2, Lost: 2}, relay.Stats())
		require.NoError(t, down.Close())
		require.Eventually(t, func() bool { return relay.Stats().Lost == 1 }, patience, time.Millisecond)
		require.Equal(t, 2, relay.CutAll())
		require.Eventually(t, func() bool { return relay.Stats().Open == 0 }, patience, time.Millisecond)
	}
}

func TestResetAllSendsRST(t *testing.T) {
	server := startEcho(t)
	reasons := make(chan string, 1)
	relay := startRelay(t, server.Addr().String(), lbtest.WithOnCut(func(reason string) { reasons <- reason }))
	conn := dial(t, relay.Addr())
	say(t, conn, "x")
	require.Equal(t, 1, relay.ResetAll())
	require.ErrorIs(t, endOf(t, conn, patience), syscall.ECONNRESET)
	require.ErrorIs(t, <-server.ends, syscall.ECONNRESET)
	require.Equal(t, "reset", <-reasons)
	require.Equal(t, int64(1), relay.Stats().Cuts)
}

func TestSetTarget(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	relay := startRelay(t, gone.Addr().String())
	requireReset(t, relay.Addr())

	relay.SetTarget(startEcho(t).Addr().String())
	say(t, dial(t, relay.Addr()), "x")
}

func TestCloseEndsEverything(t *testing.T) {
	server := startEcho(t)
	relay, err := lbtest.Listen("127.0.0.1:0", server.Addr().String(), lbtest.WithIdle(time.Hour))
	require.NoError(t, err)
	conn := dial(t, relay.Addr())
	say(t, conn, "x")
	require.NoError(t, relay.Close())
	require.NoError(t, relay.Close())
	require.Error(t, endOf(t, conn, patience))
	require.Zero(t, relay.Stats().Open)
	require.Zero(t, relay.Stats().Cuts)
	_, err = net.Dial("tcp", relay.Addr())
	require.Error(t, err)

	_, err = lbtest.Listen("not an address", "")
	require.ErrorContains(t, err, "lbtest: ")
}

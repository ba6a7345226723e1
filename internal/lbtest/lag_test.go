package lbtest_test

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

func TestRelay_Lag(t *testing.T) {
	const lag = 100 * time.Millisecond
	server := startEcho(t)
	relay := startRelay(t, server.Addr().String())
	conn := dial(t, relay.Addr())
	said := func(text string) time.Duration {
		began := time.Now()
		say(t, conn, text)
		return time.Since(began)
	}
	said("before")
	relay.SetLag(lag)
	require.GreaterOrEqual(t, said("there and back"), 2*lag)

	// What is on its way stays before what comes after it, also when the lag ends.
	_, err := io.WriteString(conn, "first ")
	require.NoError(t, err)
	time.Sleep(lag / 10)
	relay.SetLag(0)
	_, err = io.WriteString(conn, "second")
	require.NoError(t, err)
	got := make([]byte, len("first second"))
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(conn, got)
	require.NoError(t, err)
	require.Equal(t, "first second", string(got))
	require.Less(t, said("as before"), lag)

	relay.SetLag(lag)
	_, err = io.WriteString(conn, "last")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	rest, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "last", string(rest), "an end comes behind what was sent before it")
	require.NoError(t, <-server.ends)
	require.Eventually(t, func() bool { return relay.Stats().Open == 0 }, patience, time.Millisecond)
}

func TestRelay_CutLosesWhatLags(t *testing.T) {
	relay := startRelay(t, startEcho(t).Addr().String())
	conn := dial(t, relay.Addr())
	say(t, conn, "x")
	relay.SetLag(time.Hour)
	_, err := io.WriteString(conn, "lost")
	require.NoError(t, err)
	requireTimeout(t, endOf(t, conn, 50*time.Millisecond))
	require.Equal(t, 1, relay.CutAll())
	require.ErrorIs(t, endOf(t, conn, patience), io.EOF)
}

func TestWire_Lag(t *testing.T) {
	const addr, lag = "10.0.0.1:5004", 300 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		wire := lbtest.NewWire()
		listener := wire.Listen(addr)
		far := make(chan net.Conn, 1)
		go func() {
			conn, _ := listener.Accept()
			far <- conn
		}()
		near, err := wire.Dial(t.Context(), addr)
		require.NoError(t, err)
		behind := <-far
		require.NotNil(t, behind)
		took := func(from, to net.Conn, text string) time.Duration {
			began := time.Now()
			_, err := io.WriteString(from, text)
			require.NoError(t, err)
			got := make([]byte, len(text))
			_, err = io.ReadFull(to, got)
			require.NoError(t, err)
			require.Equal(t, text, string(got))
			return time.Since(began)
		}
		require.Zero(t, took(near, behind, "at once"))
		wire.SetLag(addr, lag)
		require.Equal(t, lag, took(near, behind, "up"))
		require.Equal(t, lag, took(behind, near, "down"))

		_, err = io.WriteString(near, "first ")
		require.NoError(t, err)
		wire.SetLag(addr, 0)
		_, err = io.WriteString(near, "second")
		require.NoError(t, err)
		got := make([]byte, len("first second"))
		_, err = io.ReadFull(behind, got)
		require.NoError(t, err)
		require.Equal(t, "first second", string(got))
		require.Zero(t, took(near, behind, "at once"))
		require.NoError(t, near.Close())
	})
}

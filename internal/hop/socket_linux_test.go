package hop_test

import (
	"context"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall has no name for.
const tcpUserTimeout = 0x12

// The kernel gives up a connection on which something sent is not acknowledged for as
// long as a ping may be unanswered: what is sent into a black hole is noticed by then
// also where no ping is due. Without pings it is the system's, a quarter of an hour.
func TestSocket(t *testing.T) {
	listener := serveReal(t, "tcp4", "127.0.0.1:0")
	for interval, want := range map[time.Duration]int{0: 0, hop.DefaultProbeInterval: 10_000} {
		var sockets []syscall.RawConn
		dial := func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := hop.DialAddress(ctx, addr)
			if err == nil {
				raw, rawErr := conn.(*net.TCPConn).SyscallConn()
				require.NoError(t, rawErr)
				sockets = append(sockets, raw)
			}
			return conn, err
		}
		withDialer(t, hop.Options{ProbeInterval: interval}, dial, func(t *testing.T, pool *hop.Pool) {
			h, err := pool.Take(&url.URL{Scheme: "tcp", Host: listener.Addr().String()})
			require.NoError(t, err)
			defer h.Release()
			require.NoError(t, check(h, 5*time.Second))
			require.Len(t, sockets, 1)
			option := func(level, name int) (value int) {
				require.NoError(t, sockets[0].Control(func(fd uintptr) {
					var err error
					value, err = syscall.GetsockoptInt(int(fd), level, name)
					require.NoError(t, err)
				}))
				return value
			}
			require.Equal(t, want, option(syscall.IPPROTO_TCP, tcpUserTimeout))
			require.Equal(t, 1, option(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE))
			require.Equal(t, systemKeepIdle(t), option(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE), "as gRPC leaves it")
		})
	}
}

// systemKeepIdle reads what a socket has that nobody has set up.
func systemKeepIdle(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(fd)) }()
	idle, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
	require.NoError(t, err)
	return idle
}

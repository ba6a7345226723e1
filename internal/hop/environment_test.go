package hop_test

import (
	"bufio"
	"net"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
)

// viaProxyChild is set where this test runs in a process of its own: Go reads
// HTTPS_PROXY only once.
const viaProxyChild = "HOP_TEST_VIA_PROXY"

// An HTTP proxy of the environment is used as the stock proxy does.
func TestDial_GoesThroughTheProxyOfTheEnvironment(t *testing.T) {
	if os.Getenv(viaProxyChild) != "" {
		withDialer(t, hop.Options{}, nil, func(t *testing.T, pool *hop.Pool) {
			h, err := pool.Take(&url.URL{Scheme: "tcp", Host: "far.example:5004"})
			require.NoError(t, err)
			defer h.Release()
			require.Error(t, check(h, 5*time.Second))
		})
		return
	}
	proxy, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	said := make(chan string, 1)
	go func() {
		defer close(said)
		conn, err := proxy.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		line, _ := bufio.NewReader(conn).ReadString('\n')
		said <- line
	}()
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), viaProxyChild+"=1", "HTTPS_PROXY=http://"+proxy.Addr().String(), "NO_PROXY=")
	out, err := child.CombinedOutput()
	require.NoError(t, proxy.Close())
	require.NoError(t, err, string(out))
	require.Equal(t, "CONNECT far.example:5004 HTTP/1.1\r\n", <-said)
}

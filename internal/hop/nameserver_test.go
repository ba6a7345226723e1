package hop_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
)

// nameServer is a real one, that can go away and come back.
type nameServer struct {
	*testing.T
	addr   string
	server *dns.Server
	served chan error
}

func (n *nameServer) start(answer string) {
	conn, err := net.ListenPacket("udp", n.addr)
	require.NoError(n, err)
	n.addr = conn.LocalAddr().String()
	started := make(chan struct{})
	n.server = &dns.Server{
		PacketConn:        conn,
		NotifyStartedFunc: func() { close(started) },
		Handler: dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
			reply := new(dns.Msg).SetReply(query)
			switch question := query.Question[0]; {
			case !strings.HasPrefix(question.Name, "registry."):
				reply.Rcode = dns.RcodeNameError
			case question.Qtype == dns.TypeA:
				rr, err := dns.NewRR(question.Name + " 1 IN A " + answer)
				require.NoError(n, err)
				reply.Answer = append(reply.Answer, rr)
			}
			_ = w.WriteMsg(reply)
		}),
	}
	n.served = make(chan error, 1)
	go func() { n.served <- n.server.ActivateAndServe() }()
	<-started
}

func (n *nameServer) stop() {
	require.NoError(n, n.server.Shutdown())
	require.NoError(n, <-n.served)
}

// A registry moves while the name server restarts, as both do when a node is lost:
// over real sockets, by the system's resolver.
func TestName_RegistryMovesWhileTheNameServerRestarts(t *testing.T) {
	const longest = 300 * time.Millisecond
	names := &nameServer{T: t, addr: "127.0.0.1:0"}
	names.start("127.0.0.1")
	before := net.DefaultResolver
	defer func() { net.DefaultResolver = before }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", names.addr)
	}}
	old := serveReal(t, "tcp4", "127.0.0.1:0")
	_, port, err := net.SplitHostPort(old.Addr().String())
	require.NoError(t, err)
	withDialer(t, hop.Options{MaxBackoff: longest}, nil, func(t *testing.T, pool *hop.Pool) {
		u, err := url.Parse("registry.:" + port)
		require.NoError(t, err)
		h, err := pool.Take(u)
		require.NoError(t, err)
		defer h.Release()
		require.NoError(t, check(h, 5*time.Second))

		names.stop()
		old.(*cuttable).cut()
		time.Sleep(4 * time.Second)
		require.False(t, h.Connected())
		serveReal(t, "tcp4", "127.0.0.2:"+port)
		names.start("127.0.0.2")
		began := time.Now()
		require.Eventually(t, h.Connected, 30*time.Second, time.Millisecond)
		t.Logf("found %s after the name server was back", time.Since(began))
		require.Less(t, time.Since(began), 3*longest)
	})
	names.stop()
}

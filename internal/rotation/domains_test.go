package rotation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	// tryTime is what clients give a try. The SDK's timeouts take it off a token, so
	// it has to be short where those are.
	tryTime = 3 * time.Second
	// patience bounds what takes a second on a machine that is idle.
	patience = 40 * time.Second
	// tail is how much of a proxy's log is shown after a failure.
	tail = 80
)

// side is a domain, its proxy, and a relay in front of each upstream of that.
type side struct {
	*domain.Domain
	ca    *identitytest.CA
	agent *identitytest.WorkloadAPI
	proxy *proc.Process
	// registry, registryProxy and nsmgr lead there from the own proxy, front leads to
	// the proxy from the other one.
	registry, registryProxy, nsmgr, front *lbtest.Relay
}

// newSides starts two domains, with an endpoint in the second.
func newSides(t *testing.T, lifetime time.Duration) [2]*side {
	t.Helper()
	dns, err := domain.StartDNS()
	require.NoError(t, err)
	t.Cleanup(dns.Close)
	var sides [2]*side
	for i := range sides {
		ca, err := identitytest.NewCA(fmt.Sprintf("nsm.cluster%d", i+1))
		require.NoError(t, err)
		sides[i] = &side{ca: ca}
	}
	for i, s := range sides {
		s.start(t, &domain.Config{
			Number: i + 1, CA: s.ca, Federated: []*identitytest.CA{sides[1-i].ca},
			TokenLifetime: lifetime, SVIDLifetime: lifetime, TryTime: tryTime,
			Resolver: dns.Resolver(),
			Front: func(nsmgr string) (string, error) {
				s.nsmgr = relay(t, s.Inside().String(), nsmgr)
				return s.nsmgr.Addr(), nil
			},
		})
		require.NoError(t, dns.Publish("registry", s.Name(), s.RegistryURL.Host))
		require.NoError(t, dns.Publish("nsmgr-proxy", s.Name(), s.front.Addr()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, direction := range []domain.Direction{domain.Outwards, domain.Inwards} {
		require.NoError(t, sides[i].StartNode(ctx, direction))
	}
	return sides
}

// start starts the registries of a domain, and the proxy.
func (s *side) start(t *testing.T, config *domain.Config) {
	t.Helper()
	var err error
	s.Domain, err = domain.Start(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	dir, err := os.MkdirTemp("", "rotation") // a socket's path must not exceed 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.agent, err = identitytest.ServeWorkloadAPI(filepath.Join(dir, "agent"), s.ca, "nsmgr-proxy",
		identitytest.WithTTL(config.SVIDLifetime), identitytest.WithFederated(config.Federated...))
	require.NoError(t, err)
	t.Cleanup(s.agent.Close)
	s.registry = relay(t, s.Inside().String(), s.RegistryURL.Host)
	s.registryProxy = relay(t, s.Inside().String(), s.RegistryProxyURL.Host)
	s.front = relay(t, s.Outside().String(), s.ProxyURL.Host)

	addresses := filepath.Join(dir, "map-ip.yaml")
	require.NoError(t, os.WriteFile(addresses, fmt.Appendf(nil, "%s: %s\n", s.Inside(), s.Outside()), 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	s.proxy, err = proc.Start(&proc.Spec{
		Name: s.Name(), Path: self, Args: []string{proxyCommand}, Dir: dir, Log: filepath.Join(dir, "log"),
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR"),
			"SPIFFE_ENDPOINT_SOCKET=" + s.agent.Addr(),
			"NSM_NAME=nsmgr-proxy-" + s.Name(),
			"NSM_LISTEN_ON=" + s.ProxyURL.String(),
			"NSM_REGISTRY_URL=tcp://" + s.registry.Addr(),
			"NSM_REGISTRY_PROXY_URL=tcp://" + s.registryProxy.Addr(),
			"NSM_MAP_IP_FILE_PATH=" + addresses,
			"NSM_MAX_TOKEN_LIFETIME=" + config.TokenLifetime.String(),
			"NSM_REQUEST_POLICIES=etc/nsm/opa/common/.*.rego,etc/nsm/opa/server/.*.rego",
			"NSM_MONITOR_POLICIES=etc/nsm/opa/monitor/.*.rego",
			"NSM_TRUST_DOMAINS=nsm.cluster1,nsm.cluster2",
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		s.proxy.Stop()
		if t.Failed() {
			t.Logf("proxy of %s:\n%s", s.Name(), s.proxy.Tail(tail))
		}
	})
	cc := s.dial(t, s.ProxyURL.Host)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(cc).Check(ctx, new(grpc_health_v1.HealthCheckRequest), grpc.WaitForReady(true))
	require.NoError(t, err, s.proxy.Tail(tail))
	require.NoError(t, cc.Close())
}

func relay(t *testing.T, host, target string) *lbtest.Relay {
	t.Helper()
	r, err := lbtest.Listen(host+":0", target)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// dial connects as a client of the domain.
func (s *side) dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	id, err := s.Identity("client")
	require.NoError(t, err)
	cc, err := grpc.NewClient("passthrough:///"+addr, id.DialOptions()...)
	require.NoError(t, err)
	return cc
}

// push tells everybody of both sides' bundles.
func push(t *testing.T, sides [2]*side) {
	t.Helper()
	for _, s := range sides {
		s.agent.Push()
	}
	time.Sleep(taken)
}

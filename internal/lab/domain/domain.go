// Package domain runs one NSM domain, all but its nsmgr-proxy, inside this
// process: registry, registry-proxy, nsmgr, forwarder, endpoint and client, each
// built from the SDK's own chain, each with its own SVID, over mutual TLS on
// loopback. The policies that the stock commands ship with are on in all of them.
//
// Everything a Domain starts ends with Close, which waits for its servers. The
// SDK's chains own goroutines that nobody can wait for; they end shortly after
// Close because their context does.
package domain

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/registry/chains/memory"
	"github.com/networkservicemesh/sdk/pkg/registry/chains/proxydns"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
)

// dialTimeout bounds the dials of the neighbours. All of them are on this
// machine; what takes longer is down.
const dialTimeout = 2 * time.Second

// tryTime is what the SDK's retries give a try.
const tryTime = 15 * time.Second

// Config is what a domain has to know.
type Config struct {
	Number        int                // 1, 2, …: 127.0.N.1 inside, 127.1.N.1 outside
	CA            *identitytest.CA   // its trust domain is the domain's name, too
	Federated     []*identitytest.CA // the other domains
	TokenLifetime time.Duration      // of every token
	SVIDLifetime  time.Duration      // of every SVID; by default it outlives the lab
	TryTime       time.Duration      // that clients give a try; by default the SDK's 15 s
	Resolver      *net.Resolver      // for the registry-proxy
	KubernetesAPI bool               // registry-k8s on a fake API server, not registry-memory
	// Front puts something in front of the nsmgr, for the requests of others,
	// and returns where that listens. It may be nil.
	Front func(nsmgr string) (hostPort string, err error)
}

// Domain is one running domain.
type Domain struct {
	Config
	RegistryURL      *url.URL
	RegistryProxyURL *url.URL
	ProxyURL         *url.URL // where this domain's nsmgr-proxy has to listen
	NSMgrURL         *url.URL

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// mu guards what follows.
	mu      sync.Mutex
	closed  bool
	servers []*grpc.Server
	tunnel  Tunnel
	sources []*identitytest.Source
}

// Name is the name of the domain: the part behind the @.
func (d *Domain) Name() string { return d.CA.TrustDomain().Name() }

// Inside is the address of the domain's only node.
func (d *Domain) Inside() net.IP { return net.IPv4(127, 0, byte(d.Number), 1) }

// Outside is the address under which other domains know that node.
func (d *Domain) Outside() net.IP { return net.IPv4(127, 1, byte(d.Number), 1) }

// Start starts the registry side of a domain. The node comes with StartNode,
// once the nsmgr-proxy runs at ProxyURL.
func Start(ctx context.Context, config *Config) (*Domain, error) {
	d := &Domain{Config: *config}
	if d.SVIDLifetime == 0 {
		d.SVIDLifetime = svidLifetime
	}
	if d.TryTime == 0 {
		d.TryTime = tryTime
	}
	d.ctx, d.cancel = context.WithCancel(ctx)

	proxyURL, err := freeURL(d.Inside())
	if err != nil {
		d.Close()
		return nil, err
	}
	d.ProxyURL = proxyURL
	for _, start := range []func() error{d.startRegistryProxy, d.startRegistry} {
		if err := start(); err != nil {
			d.Close()
			return nil, fmt.Errorf("domain %s: %w", d.Name(), err)
		}
	}
	return d, nil
}

// Close stops everything that the domain runs. It may be called twice.
func (d *Domain) Close() {
	d.cancel()
	d.mu.Lock()
	d.closed = true
	servers := d.servers
	d.servers = nil
	d.mu.Unlock()
	for _, server := range servers {
		server.Stop()
	}
	d.wg.Wait()
}

func (d *Domain) startRegistryProxy() error {
	id, err := d.Identity("registry-proxy")
	if err != nil {
		return err
	}
	listener, at, err := listen(d.Inside())
	if err != nil {
		return err
	}
	server := proxydns.NewServer(d.ctx, id.Tokens, d.Resolver,
		proxydns.WithAuthorizeNSRegistryServer(nsServerPolicy()),
		proxydns.WithAuthorizeNSERegistryServer(nseServerPolicy()),
		proxydns.WithAuthorizeNSRegistryClient(nsClientPolicy()),
		proxydns.WithAuthorizeNSERegistryClient(nseClientPolicy()),
		proxydns.WithDialOptions(id.DialOptions()...))
	d.RegistryProxyURL = at
	_, err = d.serve(listener, id, server.Register)
	return err
}

func (d *Domain) startRegistry() error {
	id, err := d.Identity("registry")
	if err != nil {
		return err
	}
	listener, at, err := listen(d.Inside())
	if err != nil {
		return err
	}
	d.RegistryURL = at
	server := memory.NewServer(d.ctx, id.Tokens,
		memory.WithDefaultExpiration(registrationLifetime),
		memory.WithProxyRegistryURL(d.ProxyURL),
		memory.WithAuthorizeNSRegistryServer(nsServerPolicy()),
		memory.WithAuthorizeNSERegistryServer(nseServerPolicy()),
		memory.WithAuthorizeNSRegistryClient(nsClientPolicy()),
		memory.WithAuthorizeNSERegistryClient(nseClientPolicy()),
		memory.WithDialOptions(id.DialOptions()...))
	if d.KubernetesAPI {
		server = newKubernetesRegistry(d.ctx, d.ProxyURL, id)
	}
	_, err = d.serve(listener, id, server.Register)
	return err
}

// serve serves what register adds, until the returned function is called or the
// domain is closed.
func (d *Domain) serve(listener net.Listener, id *Identity, register func(*grpc.Server)) (stop func(), err error) {
	server := grpc.NewServer(grpc.Creds(id.ServerCredentials()))
	register(server)

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = listener.Close()
		return nil, net.ErrClosed
	}
	d.servers = append(d.servers, server)
	// A Serve that fails early shows at once: nothing in the lab answers then.
	d.wg.Go(func() { _ = server.Serve(listener) })
	return server.Stop, nil
}

func listen(ip net.IP) (net.Listener, *url.URL, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
	if err != nil {
		return nil, nil, fmt.Errorf("domain: %w", err)
	}
	return listener, &url.URL{Scheme: "tcp", Host: listener.Addr().String()}, nil
}

// freeURL finds a port for a process that is started later. Nothing keeps the
// port until then; the kernel hands out others first.
func freeURL(ip net.IP) (*url.URL, error) {
	listener, at, err := listen(ip)
	if err != nil {
		return nil, err
	}
	return at, listener.Close()
}

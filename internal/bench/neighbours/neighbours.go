// Package neighbours is what stands around the proxy that is measured: the far
// side, the registries, and the identities of all. None of their cost is the proxy's:
// the far side is a process of its own, so that what the load does to the harness's
// does not hold up its answers, and the rest is part of the harness's. They count what
// the proxy does to them.
//
// Everything ends with Close, which waits for it.
package neighbours

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
)

// Role is the side of a path that the proxy stands on.
type Role string

const (
	// Outbound is the proxy of the client's domain.
	Outbound Role = "outbound"
	// Inbound is the proxy of the endpoint's domain.
	Inbound Role = "inbound"
)

const (
	endpoint = "endpoint"
	service  = "service"
	// Endpoint and Service are what requests ask for.
	Endpoint = endpoint + "@nsm.two"
	Service  = service + "@nsm.two"
)

// Counts are what the proxy did so far.
type Counts struct {
	Connections         int64 // to the far side
	Handshakes          int64 // likewise, those that succeeded
	Open                int64 // connections to the far side that are open now
	Watched             int   // legs of which a monitor stream is open there now
	Opened              int   // monitor streams that were opened there
	RegistryConnections int64
	Finds               int64
}

// Neighbours are one proxy's.
type Neighbours struct {
	// WorkloadAPI, Registry, RegistryProxy, Far and Proxy are addresses: of the
	// socket as SPIFFE_ENDPOINT_SOCKET wants it, and host:port of the others.
	// Proxy is where the proxy has to listen.
	WorkloadAPI, Registry, RegistryProxy, Far, Proxy string
	// Downstream is the identity of who sends requests.
	Downstream *Identity

	far      *farProcess
	workload *identitytest.WorkloadAPI
	servers  []*grpc.Server
	wg       sync.WaitGroup

	registries []*countingListener
	finds      atomic.Int64
}

// Start starts the neighbours of a proxy in that role. self is this binary, which runs
// RunFar if its first argument is FarCommand; sockets are made in dir.
func Start(ctx context.Context, role Role, dir, self string) (*Neighbours, error) {
	n := new(Neighbours)
	if err := n.start(ctx, role, dir, self); err != nil {
		n.Close()
		return nil, fmt.Errorf("neighbours: %w", err)
	}
	return n, nil
}

func (n *Neighbours) start(ctx context.Context, role Role, dir, self string) error {
	one, err := identitytest.NewCA("nsm.one")
	if err != nil {
		return err
	}
	two, err := identitytest.NewCA("nsm.two")
	if err != nil {
		return err
	}
	// The proxy's own domain, and who is before and behind it.
	home, other, before, behind := one, two, "forwarder", "nsmgr-proxy"
	downstream, upstream := one, two
	if role == Inbound {
		home, other, before, behind = two, one, "nsmgr-proxy", "nsmgr"
	}
	foreign := map[*identitytest.CA]*identitytest.CA{one: two, two: one}
	if n.Downstream, err = newIdentity(downstream, before, foreign[downstream]); err != nil {
		return err
	}
	if n.far, err = startFar(ctx, self, dir, upstream, behind, foreign[upstream]); err != nil {
		return err
	}
	n.Far = n.far.addr
	registries, err := newIdentity(home, "registry", other)
	if err != nil {
		return err
	}
	if n.workload, err = identitytest.ServeWorkloadAPI(filepath.Join(dir, "workload.sock"), home, "nsmgr-proxy",
		identitytest.WithTTL(svidLifetime), identitytest.WithFederated(other)); err != nil {
		return err
	}
	n.WorkloadAPI = n.workload.Addr()
	return n.listen(role, registries)
}

// listen starts the servers, and finds a port for the proxy.
func (n *Neighbours) listen(role Role, registries *Identity) error {
	var err error
	if n.Proxy, err = proc.FreeAddress(); err != nil {
		return err
	}
	tcp := func(host string) string { return (&url.URL{Scheme: "tcp", Host: host}).String() }
	local, remote := &register{finds: &n.finds}, &register{finds: &n.finds, name: Endpoint, url: tcp(n.Far)}
	if role == Inbound {
		local.name, local.url = endpoint, tcp(n.Far)
		remote.url = tcp(n.Proxy)
	}
	options := registries.serverOptions()
	for at, names := range map[*string]*register{&n.Registry: local, &n.RegistryProxy: remote} {
		listener, err := n.serve(names.register, options)
		if err != nil {
			return err
		}
		n.registries = append(n.registries, listener)
		*at = listener.Addr().String()
	}
	return nil
}

func (n *Neighbours) serve(register func(*grpc.Server), options []grpc.ServerOption) (*countingListener, error) {
	listener, err := listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(options...)
	register(server)
	n.servers = append(n.servers, server)
	// A Serve that fails shows at once: nothing is answered then.
	n.wg.Go(func() { _ = server.Serve(listener) })
	return listener, nil
}

// Counts returns what the proxy did so far.
func (n *Neighbours) Counts() Counts {
	counts := n.far.counts()
	counts.Finds = n.finds.Load()
	for _, listener := range n.registries {
		accepted, _ := listener.counts()
		counts.RegistryConnections += accepted
	}
	return counts
}

// Done is closed when the far side has ended by itself, and Err says how.
func (n *Neighbours) Done() <-chan struct{} { return n.far.Done() }

// Err says how the far side ended. Call it after Done.
func (n *Neighbours) Err() error { return n.far.Err() }

// Cut ends every connection to the far side, as a balancer in between would, and
// returns how many those were. What the far side knows of the legs stays.
func (n *Neighbours) Cut() int { return n.far.cut() }

// WatchedAfter returns how long after then each of the monitor streams was opened
// that came since, in order.
func (n *Neighbours) WatchedAfter(then time.Time) []time.Duration { return n.far.watchedAfter(then) }

// Close ends everything and waits for it.
func (n *Neighbours) Close() {
	for _, server := range n.servers {
		server.Stop()
	}
	n.wg.Wait()
	if n.far != nil {
		n.far.close()
	}
	if n.workload != nil {
		n.workload.Close()
	}
}

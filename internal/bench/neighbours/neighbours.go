// Package neighbours is what stands around the proxy that is measured: the far
// side, the registries, and the identities of all. They run in the harness's own
// process, so that none of their cost is the proxy's, and they count what the
// proxy does to them.
//
// Everything ends with Close, which waits for it.
package neighbours

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
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

	far      *lbtest.Far
	farConns *countingListener
	workload *identitytest.WorkloadAPI
	servers  []*grpc.Server
	wg       sync.WaitGroup

	registries        []*countingListener
	handshakes, finds atomic.Int64
}

// Start starts the neighbours of a proxy in that role. The socket of the Workload
// API is made in dir.
func Start(role Role, dir string) (*Neighbours, error) {
	n := new(Neighbours)
	if err := n.start(role, dir); err != nil {
		n.Close()
		return nil, fmt.Errorf("neighbours: %w", err)
	}
	return n, nil
}

func (n *Neighbours) start(role Role, dir string) error {
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
	farSide, err := newIdentity(upstream, behind, foreign[upstream])
	if err != nil {
		return err
	}
	registries, err := newIdentity(home, "registry", other)
	if err != nil {
		return err
	}
	if n.workload, err = identitytest.ServeWorkloadAPI(filepath.Join(dir, "workload.sock"), home, "nsmgr-proxy",
		identitytest.WithTTL(svidLifetime), identitytest.WithFederated(other)); err != nil {
		return err
	}
	n.WorkloadAPI = n.workload.Addr()
	return n.listen(role, farSide, registries)
}

// listen starts the servers, and finds a port for the proxy.
func (n *Neighbours) listen(role Role, farSide, registries *Identity) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	n.Proxy = free.Addr().String()
	// Nothing keeps the port until the proxy has it; the kernel hands out others
	// first.
	if err = free.Close(); err != nil {
		return err
	}
	n.far = lbtest.NewFar()
	if n.farConns, err = n.serve(n.far.Register, farSide.serverOptions(&n.handshakes)); err != nil {
		return err
	}
	n.Far = n.farConns.Addr().String()
	tcp := func(host string) string { return (&url.URL{Scheme: "tcp", Host: host}).String() }
	local, remote := &register{finds: &n.finds}, &register{finds: &n.finds, name: Endpoint, url: tcp(n.Far)}
	if role == Inbound {
		local.name, local.url = endpoint, tcp(n.Far)
		remote.url = tcp(n.Proxy)
	}
	options := registries.serverOptions(new(atomic.Int64))
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	counted := &countingListener{Listener: listener, open: make(map[*countedConn]struct{})}
	server := grpc.NewServer(options...)
	register(server)
	n.servers = append(n.servers, server)
	// A Serve that fails shows at once: nothing is answered then.
	n.wg.Go(func() { _ = server.Serve(counted) })
	return counted, nil
}

// Counts returns what the proxy did so far.
func (n *Neighbours) Counts() Counts {
	counts := Counts{Handshakes: n.handshakes.Load(), Watched: n.far.Watched(), Finds: n.finds.Load()}
	counts.Connections, counts.Open = n.farConns.counts()
	for _, listener := range n.registries {
		accepted, _ := listener.counts()
		counts.RegistryConnections += accepted
	}
	return counts
}

// Cut ends every connection to the far side, as a balancer in between would, and
// returns how many those were. What the far side knows of the legs stays.
func (n *Neighbours) Cut() int { return n.farConns.cut() }

// WatchedAfter returns how long after then each of the monitor streams was opened
// that came since, in order.
func (n *Neighbours) WatchedAfter(then time.Time) []time.Duration {
	var after []time.Duration
	for _, at := range n.far.OpenedAfter(then) {
		after = append(after, at.Sub(then))
	}
	return after
}

// Close ends everything and waits for it.
func (n *Neighbours) Close() {
	for _, server := range n.servers {
		server.Stop()
	}
	n.wg.Wait()
	if n.workload != nil {
		n.workload.Close()
	}
}

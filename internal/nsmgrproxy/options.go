package nsmgrproxy

import (
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/authorize"
	"github.com/networkservicemesh/sdk/pkg/networkservice/common/null"
	registryauthorize "github.com/networkservicemesh/sdk/pkg/registry/common/authorize"
	authmonitor "github.com/networkservicemesh/sdk/pkg/tools/monitorconnection/authorize"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

const (
	// DefaultMonitorGrace outlasts what a balancer takes to move or restart, and
	// is a fifth of the shortest token lifetime in use.
	DefaultMonitorGrace = 30 * time.Second
	// DefaultMonitorLocalGrace is shorter: between the nodes of one cluster
	// there is no balancer to wait for, and a dead node should not wait longer.
	DefaultMonitorLocalGrace = 10 * time.Second
)

type options struct {
	name                            string
	listenOn                        *url.URL
	dialOptions                     []grpc.DialOption
	mapIPFilePath                   string
	monitorGrace, monitorLocalGrace time.Duration
	dialTimeout                     time.Duration
	hopProbeInterval, hopMaxBackoff time.Duration
	identity                        hop.Identity
	tokenLifetime                   time.Duration
	room                            leg.Room
	gate                            networkservice.NetworkServiceServer
	authorizeServer                 networkservice.NetworkServiceServer
	authorizeMonitorServer          networkservice.MonitorConnectionServer
	authorizeNSServer               registry.NetworkServiceRegistryServer
	authorizeNSEServer              registry.NetworkServiceEndpointRegistryServer
	authorizeNSClient               registry.NetworkServiceRegistryClient
	authorizeNSEClient              registry.NetworkServiceEndpointRegistryClient
	wg                              *sync.WaitGroup
}

func newOptions(opts []Option) *options {
	o := &options{
		name:                   "nsmgr-proxy-" + uuid.NewString(),
		listenOn:               &url.URL{Scheme: "unix", Host: "listen.on"},
		mapIPFilePath:          "map-ip.yaml",
		monitorGrace:           DefaultMonitorGrace,
		monitorLocalGrace:      DefaultMonitorLocalGrace,
		dialTimeout:            hop.DefaultDialTimeout,
		hopProbeInterval:       hop.DefaultProbeInterval,
		hopMaxBackoff:          hop.DefaultMaxBackoff,
		gate:                   null.NewServer(),
		authorizeServer:        authorize.NewServer(authorize.Any()),
		authorizeMonitorServer: authmonitor.NewMonitorConnectionServer(authmonitor.Any()),
		authorizeNSServer:      registryauthorize.NewNetworkServiceRegistryServer(registryauthorize.Any()),
		authorizeNSEServer:     registryauthorize.NewNetworkServiceEndpointRegistryServer(registryauthorize.Any()),
		authorizeNSClient:      registryauthorize.NewNetworkServiceRegistryClient(registryauthorize.Any()),
		authorizeNSEClient:     registryauthorize.NewNetworkServiceEndpointRegistryClient(registryauthorize.Any()),
		wg:                     new(sync.WaitGroup),
	}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

func (o *options) hop() hop.Options {
	return hop.Options{
		DialOptions:   o.dialOptions,
		DialTimeout:   o.dialTimeout,
		ProbeInterval: o.hopProbeInterval,
		MaxBackoff:    o.hopMaxBackoff,
		Identity:      o.identity,
		TokenLifetime: o.tokenLifetime,
	}
}

// Option changes one setting of the server.
type Option func(*options)

// WithName sets the name of this proxy's path segment. It has to be unique in
// the domain: equal adjacent names merge into one segment. Keeping it over a
// restart is what lets the next process take its connections over in place.
func WithName(name string) Option {
	return func(o *options) { o.name = name }
}

// WithListenOn sets the URL under which others in the domain reach this proxy.
func WithListenOn(u *url.URL) Option {
	return func(o *options) { o.listenOn = u }
}

// WithDialOptions sets the credentials, interceptors and default call options
// of every upstream connection.
func WithDialOptions(dialOptions ...grpc.DialOption) Option {
	return func(o *options) { o.dialOptions = dialOptions }
}

// WithMapIPFilePath sets the path of the YAML file that maps internal to
// external addresses.
func WithMapIPFilePath(path string) Option {
	return func(o *options) { o.mapIPFilePath = path }
}

// WithMonitorGrace sets how long the loss of an upstream monitor stream is
// kept from the subscribers: remote towards other domains, local towards the
// nsmgrs of this one. 0 makes every loss a DOWN at once.
func WithMonitorGrace(remote, local time.Duration) Option {
	return func(o *options) { o.monitorGrace, o.monitorLocalGrace = remote, local }
}

// WithDialTimeout bounds one attempt at an upstream connection: TCP, TLS and
// the HTTP/2 preface together.
func WithDialTimeout(d time.Duration) Option {
	return func(o *options) { o.dialTimeout = d }
}

// WithHopProbeInterval sets the silence on a used upstream connection after
// which it is probed. 0 turns the probe, and the ping behind it, off.
func WithHopProbeInterval(d time.Duration) Option {
	return func(o *options) { o.hopProbeInterval = d }
}

// WithHopMaxBackoff caps the pause between attempts at an upstream connection.
func WithHopMaxBackoff(d time.Duration) Option {
	return func(o *options) { o.hopMaxBackoff = d }
}

// WithIdentity has upstream connections renewed when the own certificate changes,
// and before a certificate of their handshake has less than tokenLifetime left.
// The default policies of nsmgrs and registries require the first, and tokens of
// full length the second.
func WithIdentity(identity hop.Identity, tokenLifetime time.Duration) Option {
	return func(o *options) { o.identity, o.tokenLifetime = identity, tokenLifetime }
}

// WithRoom sets what legs take their memory from. Without it there is room for any.
func WithRoom(room leg.Room) Option {
	return func(o *options) { o.room = room }
}

// WithGate sets the element that decides on a Request or Close before anything
// acts on it.
func WithGate(s networkservice.NetworkServiceServer) Option {
	return func(o *options) { o.gate = s }
}

// WithAuthorizeServer sets the element that authorizes Request and Close where the
// SDK's chain does: when tokens have been put into the path.
func WithAuthorizeServer(s networkservice.NetworkServiceServer) Option {
	return func(o *options) { o.authorizeServer = s }
}

// WithAuthorizeMonitorConnectionServer sets the element that authorizes
// subscriptions.
func WithAuthorizeMonitorConnectionServer(s networkservice.MonitorConnectionServer) Option {
	return func(o *options) { o.authorizeMonitorServer = s }
}

// WithAuthorizeNSRegistryServer sets the element that authorizes calls of the
// network service registry.
func WithAuthorizeNSRegistryServer(s registry.NetworkServiceRegistryServer) Option {
	return func(o *options) { o.authorizeNSServer = s }
}

// WithAuthorizeNSERegistryServer sets the element that authorizes calls of the
// endpoint registry.
func WithAuthorizeNSERegistryServer(s registry.NetworkServiceEndpointRegistryServer) Option {
	return func(o *options) { o.authorizeNSEServer = s }
}

// WithAuthorizeNSRegistryClient sets the element that authorizes what the
// network service registries behind us answer.
func WithAuthorizeNSRegistryClient(c registry.NetworkServiceRegistryClient) Option {
	return func(o *options) { o.authorizeNSClient = c }
}

// WithAuthorizeNSERegistryClient sets the element that authorizes what the
// endpoint registries behind us answer.
func WithAuthorizeNSERegistryClient(c registry.NetworkServiceEndpointRegistryClient) Option {
	return func(o *options) { o.authorizeNSEClient = c }
}

// WithWaitGroup counts in wg what the server runs in the background. All of it
// ends when the context of NewServer does; waiting for wg is waiting for that.
func WithWaitGroup(wg *sync.WaitGroup) Option {
	return func(o *options) { o.wg = wg }
}

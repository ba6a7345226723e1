package nsmgrproxy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/authz"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/logtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

const (
	nsmgrAddr = "10.9.2.3:5001"
	// svidTime is shorter than SPIRE's hour, for the sake of the race detector, which makes
	// an hour of three processes long. It renews at half of it.
	svidTime = 24 * time.Minute
	// leastPause is between a client's refreshes.
	leastPause = 100 * time.Millisecond
)

// agent is what a workload knows of its Workload API: while that is away, neither its
// certificate nor the bundles change.
type agent struct {
	*testing.T
	ca, other *identitytest.CA
	name      string

	mu sync.Mutex
	// All following fields are guarded by mu.
	away    bool
	svid    *x509svid.SVID
	bundles []*x509bundle.Bundle
	changed chan struct{}
}

func newAgent(t *testing.T, name string, ca, other *identitytest.CA) *agent {
	a := &agent{T: t, ca: ca, other: other, name: name, changed: make(chan struct{})}
	a.renew()
	return a
}

func (a *agent) renew() {
	svid, err := a.ca.SVID(a.name, svidTime)
	require.NoError(a, err)
	a.push(svid)
}

// push gives the workload the bundles as they are now, and a certificate if there is
// a new one.
func (a *agent) push(svid *x509svid.SVID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return
	}
	a.bundles = []*x509bundle.Bundle{a.ca.Bundle(), a.other.Bundle()}
	if svid != nil {
		a.svid = svid
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

func (a *agent) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = true
}

func (a *agent) back() {
	a.mu.Lock()
	a.away = false
	a.mu.Unlock()
	a.renew()
}

func (a *agent) GetX509SVID() (*x509svid.SVID, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.svid, nil
}

func (a *agent) GetX509BundleForTrustDomain(domain spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, bundle := range a.bundles {
		if bundle.TrustDomain() == domain {
			return bundle, nil
		}
	}
	return nil, fmt.Errorf("no bundle of %s", domain)
}

func (a *agent) Current() (name string, notAfter time.Time) {
	svid, _ := a.GetX509SVID()
	return svid.Certificates[0].SerialNumber.Text(16), svid.Certificates[0].NotAfter
}

func (a *agent) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

func (a *agent) tokens() token.GeneratorFunc { return spiffejwt.TokenGeneratorFunc(a, tokenTime) }

func (a *agent) clientCredentials() credentials.TransportCredentials {
	return credentials.NewTLS(tlsconfig.MTLSClientConfig(a, a, tlsconfig.AuthorizeAny()))
}

func (a *agent) serverCredentials() credentials.TransportCredentials {
	config := tlsconfig.MTLSServerConfig(a, a, tlsconfig.AuthorizeAny())
	config.SessionTicketsDisabled = true
	return credentials.NewTLS(config)
}

// estranged is the outbound proxy of one domain and the inbound one of another, with
// the SDK's policies on in both, between a forwarder and an nsmgr.
type estranged struct {
	*world
	near, far          *agent // of the proxies
	client, nsmgr, fwd *agent
	all                []*agent
	cas                [2]*identitytest.CA
	nearLog, farLog    *logtest.Lines
	dialled            []*grpc.ClientConn
	dialledWith        string
}

func inEstrangedBubble(t *testing.T, masks []string, f func(e *estranged)) {
	t.Helper()
	policies, err := authz.Load(masks)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		e := &estranged{nearLog: logtest.New(), farLog: logtest.New(), world: &world{
			T: t, wire: lbtest.NewWire(), far: lbtest.NewPeer("nsmgr"), local: newFakeRegistry(), remote: newFakeRegistry(),
		}}
		for i := range e.cas {
			e.cas[i], err = identitytest.NewCA(fmt.Sprintf("nsm.cluster%d", i+1))
			require.NoError(t, err)
		}
		add := func(name string, domain int) *agent {
			a := newAgent(t, name, e.cas[domain], e.cas[1-domain])
			e.all = append(e.all, a)
			return a
		}
		e.client, e.nsmgr, e.fwd = add("client", 0), add("nsmgr", 0), add("forwarder", 0)
		e.near, e.far = add("nsmgr-proxy", 0), add("nsmgr-proxy", 1)
		registries, endpoint := [2]*agent{add("registry", 0), add("registry", 1)}, add("nsmgr", 1)

		ctx, cancel := context.WithCancel(context.Background())
		defer e.wg.Wait()
		defer cancel()
		farRegistry := newFakeRegistry()
		farRegistry.set("endpoint", "tcp://"+nsmgrAddr)
		farRegistry.set("nsmgr-6", "tcp://"+nsmgrAddr) // the forwarder, by which the way back is found
		e.remote.set(endpointName, "tcp://"+farAddr)
		defer e.serve(nsmgrAddr, e.world.far.Register, grpc.Creds(endpoint.serverCredentials()))()
		defer e.serve(registryProxyAddr, e.remote.register, grpc.Creds(registries[0].serverCredentials()))()
		defer e.serve(registryAddr, farRegistry.register, grpc.Creds(registries[1].serverCredentials()))()
		proxy := func(name, addr, registry string, a *agent, lines *logtest.Lines) func() {
			u := &url.URL{Scheme: "tcp", Host: registry}
			chain := nsmgrproxy.NewServer(log.WithLog(ctx, lines), u, u, a.tokens(),
				nsmgrproxy.WithName(name), nsmgrproxy.WithListenOn(&url.URL{Scheme: "tcp", Host: addr}),
				nsmgrproxy.WithMapIPFilePath(""), nsmgrproxy.WithWaitGroup(&e.wg),
				nsmgrproxy.WithIdentity(a, tokenTime), nsmgrproxy.WithDialOptions(e.dialOptionsOf(a)...),
				nsmgrproxy.WithGate(authz.NewGate(policies, a.tokens())))
			return e.serve(addr, chain.Register, append(nsmgrproxy.ServerOptions(), grpc.Creds(a.serverCredentials()))...)
		}
		defer proxy("far-proxy", farAddr, registryAddr, e.far, e.farLog)()
		defer proxy("proxy", proxyAddr, registryProxyAddr, e.near, e.nearLog)()
		e.dial()
		defer e.hangUp()
		stop := e.renewing()
		defer stop()
		f(e)
	})
}

func (e *estranged) dialOptionsOf(a *agent) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(e.wire.Dial),
		grpc.WithTransportCredentials(a.clientCredentials()),
		grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(a.tokens()))),
	}
}

// dial connects the forwarder, anew after a first time: what it watches goes on as it is.
func (e *estranged) dial() {
	cc, err := grpc.NewClient("passthrough:///"+proxyAddr, e.dialOptionsOf(e.fwd)...)
	require.NoError(e, err)
	e.cc = cc
	e.dialledWith, _ = e.fwd.Current()
	e.dialled = append(e.dialled, cc)
}

func (e *estranged) hangUp() {
	for _, cc := range e.dialled {
		require.NoError(e, cc.Close())
	}
}

// renewing has everybody renew at half of a certificate's life, not all at once.
func (e *estranged) renewing() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i, a := range e.all {
		wg.Go(func() {
			next := time.Duration(i) * time.Minute // the first time
			for {
				select {
				case <-time.After(next):
					a.renew()
				case <-ctx.Done():
					return
				}
				next = svidTime / 2
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// newRoots gives the first domain a new root, to all who can be told.
func (e *estranged) newRoots() {
	push := func() {
		for _, a := range e.all {
			a.push(nil)
		}
	}
	require.NoError(e, e.cas[0].Prepare())
	push()
	e.cas[0].Activate()
	for _, a := range e.all {
		a.renew()
	}
	e.cas[0].Retire()
	push()
}

// signed has the hops before the forwarder sign the path.
func (e *estranged) signed(r *networkservice.NetworkServiceRequest) *networkservice.NetworkServiceRequest {
	r = r.Clone()
	path := []*agent{e.client, e.nsmgr, e.fwd, e.near}
	for i, segment := range r.GetConnection().GetPath().GetPathSegments()[:3] {
		next, err := path[i+1].GetX509SVID()
		require.NoError(e, err)
		tok, expires, err := path[i].tokens()(credentials.TLSInfo{
			State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{next.Certificates[0]}},
		})
		require.NoError(e, err)
		segment.Token, segment.Expires = tok, timestamppb.New(expires)
	}
	return r
}

// try is a Request of the forwarder.
func (e *estranged) try(r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	return networkservice.NewNetworkServiceClient(e.cc).Request(ctx, e.signed(r))
}

// shortest is what is left of the first token of the path that ends.
func shortest(conn *networkservice.Connection) time.Duration {
	least := tokenTime
	for _, segment := range conn.GetPath().GetPathSegments() {
		least = min(least, time.Until(segment.GetExpires().AsTime()))
	}
	return least
}

// seen is what the forwarder and the endpoint see of a connection for a while.
type seen struct {
	failed, downs, deletes, requests, closes int
}

// refreshing goes on with a connection as the SDK's client does: at a fifth of what its
// shortest token has left, and after an error again.
func (e *estranged) refreshing(s *subscriber, conn *networkservice.Connection, until time.Time) (*networkservice.Connection, seen) {
	var did seen
	requests, closes := len(e.world.far.Requests()), len(e.world.far.Closes())
	for pause := leastPause; time.Now().Add(pause).Before(until); {
		time.Sleep(pause)
		// A neighbour's connection is as old as its certificate, at most.
		if now, _ := e.fwd.Current(); now != e.dialledWith {
			e.dial()
		}
		if refreshed, err := e.try(again(conn)); err != nil {
			did.failed++
			pause = callTime
		} else {
			conn = refreshed
			pause = max(shortest(conn)/5, leastPause)
		}
		for _, event := range s.next() {
			for _, c := range event.GetConnections() {
				switch {
				case event.GetType() == networkservice.ConnectionEventType_DELETE:
					did.deletes++
				case c.GetState() == networkservice.State_DOWN:
					did.downs++
				}
			}
		}
	}
	did.requests, did.closes = len(e.world.far.Requests())-requests, len(e.world.far.Closes())-closes
	return conn, did
}

// A Workload API that is away for longer than a certificate lives takes the tokens with
// it: that ends a connection, once. Whether the policies say so or not, nobody is
// answered for nothing until then, and all is well once it is back.
func TestOutlived_ByItsWorkloadAPI(t *testing.T) {
	policies := []string{"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/server/.*.rego"}
	for _, c := range []struct {
		name  string
		masks []string
		who   func(e *estranged) *agent
	}{
		{"outbound", policies, func(e *estranged) *agent { return e.near }},
		{"outbound without policies", nil, func(e *estranged) *agent { return e.near }},
		{"inbound", policies, func(e *estranged) *agent { return e.far }},
		{"inbound without policies", nil, func(e *estranged) *agent { return e.far }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inEstrangedBubble(t, c.masks, func(e *estranged) {
				conn, err := e.try(newRequest(1))
				require.NoError(t, err)
				s := e.subscribe(1)
				defer s.end()
				conn, did := e.refreshing(s, conn, time.Now().Add(15*time.Minute))
				require.Equal(t, seen{requests: did.requests}, did)

				who := c.who(e)
				who.leave()
				_, end := who.Current()
				conn, did = e.refreshing(s, conn, end.Add(-time.Minute))
				require.Equal(t, seen{requests: did.requests}, did, "the certificate is good still")

				dials, lines := e.wire.Dials(farAddr)+e.wire.Dials(nsmgrAddr), e.lines()
				away := time.Until(end.Add(5 * time.Minute))
				conn, did = e.refreshing(s, conn, end.Add(5*time.Minute))
				t.Logf("away: %+v, %d dials, %d lines", did, e.wire.Dials(farAddr)+e.wire.Dials(nsmgrAddr)-dials, e.lines()-lines)
				require.NotZero(t, did.failed)
				require.LessOrEqual(t, did.downs, did.deletes, "both proxies end it at the same moment: the far one's DELETE is a DOWN if it comes first")
				require.LessOrEqual(t, did.deletes, 2)
				require.LessOrEqual(t, did.closes, 4, "both proxies end it, and what was asked for in the last second")
				require.LessOrEqual(t, did.requests, 40, "refreshes at a fifth of a minute, and then of what is left")
				require.LessOrEqual(t, e.wire.Dials(farAddr)+e.wire.Dials(nsmgrAddr)-dials, int(away/(2*time.Second)), "no hot loop")
				require.LessOrEqual(t, e.lines()-lines, 30+int(away/callTime), "what ends is said, and then a line for a refused Request")

				e.newRoots()
				who.back()
				conn, did = e.refreshing(s, conn, time.Now().Add(time.Minute))
				require.LessOrEqual(t, did.failed, 2)
				_, did = e.refreshing(s, conn, time.Now().Add(5*time.Minute))
				require.Equal(t, seen{requests: did.requests}, did)
			})
		})
	}
}

// lines is how much both proxies have said of what changed.
func (e *estranged) lines() (n int) {
	for _, level := range []string{"INFO", "WARN", "ERROR"} {
		n += len(e.nearLog.All(level+" ")) + len(e.farLog.All(level+" "))
	}
	return n
}

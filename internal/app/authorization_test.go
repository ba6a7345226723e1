package app

import (
	"strings"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
)

// shortSVID is short enough to be outlived, and long enough for what has to be done in it.
const shortSVID = 5 * time.Second

// policies are those that the README gives.
var policies = []string{
	"NSM_REQUEST_POLICIES=etc/nsm/opa/common/.*.rego,etc/nsm/opa/server/.*.rego",
	"NSM_MONITOR_POLICIES=etc/nsm/opa/monitor/.*.rego",
}

func denied(t *testing.T, err error) {
	t.Helper()
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
}

func unreachable(t *testing.T, err error) {
	t.Helper()
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
}

// started is a process that has an identity and serves.
func started(t *testing.T, here *place, environ ...string) *process {
	t.Helper()
	p := start(t, append(environ, here.environ...)...)
	p.says(t, "Startup completed in ")
	t.Cleanup(func() {
		p.cancel()
		p.endsWith(t, 0, promised)
	})
	return p
}

func TestPolicies_AreAskedForRequestsAndSubscriptions(t *testing.T) {
	here, there := newPlace(t), newCA(t, "nsm.two")
	two := newFar(t, there, here)
	newRegistries(t, here, map[string]string{"endpoint@nsm.two": two.url})
	here.serveAgent(t, identitytest.WithFederated(there))
	started(t, here, policies...)
	client, nsmgr := newNeighbour(t, "client", here.ca, here), newNeighbour(t, "nsmgr", here.ca, here)
	forwarder, other := newNeighbour(t, "forwarder", here.ca, here), newNeighbour(t, "other", here.ca, here)
	good, thief := forwarder.dial(here, forwarder.tokens()), other.dial(here, forwarder.tokens())

	for what, refused := range map[string]func() error{
		"without a token": func() error {
			_, err := request(forwarder.dial(here, nil), "1", "endpoint@nsm.two", client, nsmgr, forwarder)
			return err
		},
		"with another's token": func() error {
			_, err := request(thief, "1", "endpoint@nsm.two", client, nsmgr, forwarder)
			return err
		},
		"with a path that others did not sign": func() error {
			_, err := request(good, "1", "endpoint@nsm.two")
			return err
		},
		"of what was not requested": func() error {
			_, err := watch(good, "1")
			return err
		},
	} {
		t.Run(what, func(t *testing.T) { denied(t, refused()) })
	}
	require.Empty(t, two.Requests())

	conn, err := request(good, "1", "endpoint@nsm.two", client, nsmgr, forwarder)
	require.NoError(t, err)
	require.Len(t, two.Requests(), 1)
	event, err := watch(good, "1")
	require.NoError(t, err)
	require.Equal(t, networkservice.State_UP, event.GetConnections()[conn.GetPath().GetPathSegments()[3].GetId()].GetState())
	_, err = watch(other.dial(here, other.tokens()), "1")
	denied(t, err)

	_, err = networkservice.NewNetworkServiceClient(thief).Close(t.Context(), conn.Clone())
	denied(t, err)
	require.Empty(t, two.Closes())
	_, err = networkservice.NewNetworkServiceClient(good).Close(t.Context(), conn.Clone())
	require.NoError(t, err)
	require.Len(t, two.Closes(), 1)
	_, err = watch(good, "1")
	denied(t, err)
}

func TestPolicies_OfRegistryCallsAreAskedOnBothSides(t *testing.T) {
	here := newPlace(t)
	r := newRegistries(t, here, nil)
	here.serveAgent(t)
	nsmgr, other := newNeighbour(t, "nsmgr", here.ca, here), newNeighbour(t, "other", here.ca, here)
	for _, c := range []struct {
		environ  string
		caller   *neighbour
		tokens   token.GeneratorFunc
		code     codes.Code
		arriving int32
	}{
		{"NSM_LOG_LEVEL=INFO", other, nsmgr.tokens(), codes.PermissionDenied, 0},
		{"NSM_REGISTRY_SERVER_POLICIES=", nsmgr, nsmgr.tokens(), codes.PermissionDenied, 1}, // by the answer, which nobody signed
		{"NSM_REGISTRY_CLIENT_POLICIES=", nsmgr, nsmgr.tokens(), codes.OK, 1},
	} {
		t.Run(c.environ, func(t *testing.T) {
			started(t, here, c.environ)
			cc := c.caller.dial(here, c.tokens)
			for _, register := range []func(*grpc.ClientConn, string) error{registerService, registerEndpoint} {
				r.registered.Store(0)
				err := register(cc, "name@nsm.two")
				require.Equal(t, c.code, status.Code(err), "%v", err)
				require.Equal(t, c.arriving, r.registered.Load())
			}
		})
	}
}

func TestFederation_BundlesAreTakenAsTheyCome(t *testing.T) {
	here, second, third := newPlace(t), newCA(t, "nsm.two"), newCA(t, "nsm.three")
	two, three := newFar(t, second, here), newFar(t, third, here)
	newRegistries(t, here, map[string]string{"endpoint@nsm.two": two.url, "endpoint@nsm.three": three.url})
	agent := here.serveAgent(t, identitytest.WithFederated(second))
	p := started(t, here, policies...)
	forwarder := newNeighbour(t, "forwarder", here.ca, here)
	client, nsmgr := newNeighbour(t, "client", here.ca, here), newNeighbour(t, "nsmgr", here.ca, here)
	cc := forwarder.dial(here, forwarder.tokens())
	// Proxies of the other domains, each with a path of its own domain.
	foreign := func(ca *identitytest.CA, number string, patience time.Duration) error {
		peer := newNeighbour(t, "forwarder", ca, here)
		_, err := requestWithin(patience, peer.dial(here, peer.tokens()), number, "endpoint@nsm.two",
			newNeighbour(t, "client", ca, here), newNeighbour(t, "nsmgr", ca, here), peer)
		return err
	}
	require.NoError(t, foreign(second, "2", wait))
	unreachable(t, foreign(third, "3", callTime))
	_, err := requestWithin(callTime, cc, "4", "endpoint@nsm.three", client, nsmgr, forwarder)
	unreachable(t, err)
	require.NotZero(t, three.refused.Load())
	require.Zero(t, three.letIn.Load())

	agent.SetFederated(second, third)
	p.says(t, "bundles of 3 trust domains received")
	require.NoError(t, foreign(third, "3", wait))
	_, err = request(cc, "4", "endpoint@nsm.three", client, nsmgr, forwarder)
	require.NoError(t, err)
	require.NotEmpty(t, three.Requests())
}

func TestTrustDomains_KeepOthersOutOnBothSides(t *testing.T) {
	here, second, third := newPlace(t), newCA(t, "nsm.two"), newCA(t, "nsm.three")
	two, three := newFar(t, second, here), newFar(t, third, here)
	newRegistries(t, here, map[string]string{"endpoint@nsm.two": two.url, "endpoint@nsm.three": three.url})
	here.serveAgent(t, identitytest.WithFederated(second, third))
	started(t, here, "NSM_TRUST_DOMAINS=nsm.one,nsm.two")
	require.NoError(t, check(t, here.dial(t, "unix://"+here.listener, second)))
	unreachable(t, check(t, here.dial(t, "unix://"+here.listener, third)))

	forwarder := newNeighbour(t, "forwarder", here.ca, here)
	cc := forwarder.dial(here, forwarder.tokens())
	_, err := request(cc, "1", "endpoint@nsm.two", forwarder)
	require.NoError(t, err)
	_, err = requestWithin(callTime, cc, "2", "endpoint@nsm.three", forwarder)
	unreachable(t, err)
	require.NotZero(t, three.refused.Load())
	require.Zero(t, three.letIn.Load())
}

func TestWorkloadAPI_IsBackWithANewRootAfterTheSVIDHasRunOut(t *testing.T) {
	here, there := newPlace(t), newCA(t, "nsm.two")
	two := newFar(t, there, here)
	newRegistries(t, here, map[string]string{"endpoint@nsm.two": two.url})
	agent := here.serveAgent(t, identitytest.WithFederated(there), identitytest.WithTTL(shortSVID))
	p := started(t, here)
	forwarder := newNeighbour(t, "forwarder", here.ca, here)
	// Each time over a connection of its own, as the SDK's forwarders do.
	refresh := func(patience time.Duration) error {
		_, err := requestWithin(patience, forwarder.dial(here, forwarder.tokens()), "1", "endpoint@nsm.two", forwarder)
		return err
	}
	require.NoError(t, refresh(wait))
	agent.Close()
	p.says(t, "lost, the SVID stays in use until")
	require.NoError(t, refresh(wait), "it is good still")
	require.Eventually(t, func() bool { return refresh(callTime) != nil }, wait, 100*time.Millisecond)

	require.NoError(t, here.ca.Prepare())
	here.ca.Activate()
	here.ca.Retire()
	require.NoError(t, forwarder.source.Rotate())
	here.serveAgent(t, identitytest.WithFederated(there))
	p.says(t, "renewed, valid until")
	require.NoError(t, refresh(wait))
	require.Equal(t, 1, strings.Count(p.logs.String(), "identity: workload API"), "said once")
	require.NotZero(t, two.letIn.Load())
}

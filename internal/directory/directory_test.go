package directory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	registrychain "github.com/networkservicemesh/sdk/pkg/registry/core/chain"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/directory"
)

const selfURL = "tcp://10.0.0.4:5004"

// found is a registry that answers every Find with what it holds: a match by
// parts of the name, as the real ones do.
type found struct {
	registry.NetworkServiceEndpointRegistryClient
	urls  map[string]string
	err   error
	finds int
}

func (f *found) Find(context.Context, *registry.NetworkServiceEndpointQuery, ...grpc.CallOption) (registry.NetworkServiceEndpointRegistry_FindClient, error) {
	f.finds++
	if f.err != nil {
		return nil, f.err
	}
	s := new(stream)
	for name, u := range f.urls {
		s.list = append(s.list, &registry.NetworkServiceEndpointResponse{NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name, Url: u}})
	}
	return s, nil
}

type stream struct {
	grpc.ClientStream
	list []*registry.NetworkServiceEndpointResponse
}

func (s *stream) Recv() (*registry.NetworkServiceEndpointResponse, error) {
	if len(s.list) == 0 {
		return nil, io.EOF
	}
	next := s.list[0]
	s.list = s.list[1:]
	return next, nil
}

func newDirectory(t *testing.T, local, proxy *found) *directory.Directory {
	self, err := url.Parse(selfURL)
	require.NoError(t, err)
	return directory.New(self, local, proxy)
}

func TestResolve(t *testing.T) {
	down := errors.New("registry is down")
	for name, c := range map[string]struct {
		endpoint      string
		local, remote map[string]string
		localErr      error
		remoteErr     error
		way           directory.Way
		url           string
		code          codes.Code
	}{
		"of another domain":            {endpoint: "nse@b", remote: map[string]string{"nse@b": "tcp://b:1"}, way: directory.Outbound, url: "tcp://b:1"},
		"of this one":                  {endpoint: "nse@a", local: map[string]string{"nse": "tcp://m:1"}, way: directory.Inbound, url: "tcp://m:1"},
		"bare name":                    {endpoint: "nse", local: map[string]string{"nse": "tcp://m:1"}, way: directory.Inbound, url: "tcp://m:1"},
		"only a part of a name":        {endpoint: "nse@a", local: map[string]string{"nse-2": "tcp://m:1"}, code: codes.FailedPrecondition},
		"nobody's":                     {endpoint: "nse@a", code: codes.FailedPrecondition},
		"bare and nobody's":            {endpoint: "nse", code: codes.FailedPrecondition},
		"found at ourselves, not here": {endpoint: "nse@a", remote: map[string]string{"nse@a": selfURL}, code: codes.FailedPrecondition},
		"local registry down":          {endpoint: "nse", localErr: down, code: codes.Unavailable},
		"local down, remote knows":     {endpoint: "nse@b", localErr: down, remote: map[string]string{"nse@b": "tcp://b:1"}, way: directory.Outbound, url: "tcp://b:1"},
		"remote down":                  {endpoint: "nse@b", remoteErr: down, code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirectory(t, &found{urls: c.local, err: c.localErr}, &found{urls: c.remote, err: c.remoteErr})
			route, err := d.Resolve(t.Context(), c.endpoint, nil)
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.Equal(t, c.way, route.Way, "%s", route.Way)
			if c.url != "" {
				require.Equal(t, c.url, route.URL.String())
			}
		})
	}
}

// taker is a registry that takes everything.
type taker struct {
	registry.NetworkServiceEndpointRegistryServer
	nse *registry.NetworkServiceEndpoint
}

func (k *taker) Register(_ context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	k.nse = nse.Clone()
	return nse, nil
}

func (k *taker) Find(_ *registry.NetworkServiceEndpointQuery, s registry.NetworkServiceEndpointRegistry_FindServer) error {
	return s.Send(&registry.NetworkServiceEndpointResponse{NetworkServiceEndpoint: k.nse.Clone()})
}

type sink struct {
	grpc.ServerStream
	ctx  context.Context
	last *registry.NetworkServiceEndpointResponse
	sent int
}

func (s *sink) Context() context.Context { return s.ctx }

func (s *sink) Send(r *registry.NetworkServiceEndpointResponse) error {
	s.last = r
	s.sent++
	return nil
}

func TestFind_NewestAddressWinsAndThisProxyStandsInItsPlace(t *testing.T) {
	d := newDirectory(t, new(found), new(found))
	k := new(taker)
	server := registrychain.NewNetworkServiceEndpointRegistryServer(directory.NewNetworkServiceEndpointRegistryServer(d), k)
	for _, u := range []string{"tcp://b:1", "tcp://b:2"} {
		k.nse = &registry.NetworkServiceEndpoint{Name: "nse@b", Url: u}
		s := &sink{ctx: t.Context()}
		require.NoError(t, server.Find(new(registry.NetworkServiceEndpointQuery), s))
		require.Equal(t, selfURL, s.last.GetNetworkServiceEndpoint().GetUrl())
		route, err := d.Resolve(t.Context(), "nse@b", nil)
		require.NoError(t, err)
		require.Equal(t, directory.Outbound, route.Way)
		require.Equal(t, u, route.URL.String())
	}
}

func TestFind_EndpointOfTheSameBareNameIsNotMistaken(t *testing.T) {
	local := &found{urls: map[string]string{"nse": "tcp://m:1"}}
	d := newDirectory(t, local, &found{urls: map[string]string{"nse@b": "tcp://b:2"}})
	k := &taker{nse: &registry.NetworkServiceEndpoint{Name: "nse@b", Url: "tcp://b:1"}}
	server := registrychain.NewNetworkServiceEndpointRegistryServer(directory.NewNetworkServiceEndpointRegistryServer(d), k)
	require.NoError(t, server.Find(new(registry.NetworkServiceEndpointQuery), &sink{ctx: t.Context()}))
	route, err := d.Resolve(t.Context(), "nse@b", nil)
	require.NoError(t, err)
	require.Equal(t, "tcp://b:1", route.URL.String())
	route, err = d.Again(t.Context(), route)
	require.NoError(t, err)
	require.Equal(t, directory.Outbound, route.Way)
	require.Equal(t, "tcp://b:2", route.URL.String())
	require.Zero(t, local.finds)
}

func TestRegister_FloatingNameLeadsBackUntilUnregistered(t *testing.T) {
	d := newDirectory(t, new(found), &found{urls: map[string]string{"nse@f": selfURL}})
	k := new(taker)
	server := registrychain.NewNetworkServiceEndpointRegistryServer(directory.NewNetworkServiceEndpointRegistryServer(d), k)
	registered, err := server.Register(t.Context(), &registry.NetworkServiceEndpoint{Name: "nse@f", Url: "tcp://m:1"})
	require.NoError(t, err)
	require.Equal(t, "tcp://m:1", registered.GetUrl(), "the endpoint keeps its own URL")
	require.Equal(t, selfURL, k.nse.GetUrl(), "the others get the proxy's")
	// Found again by a client of this domain, it is still here.
	require.NoError(t, server.Find(new(registry.NetworkServiceEndpointQuery), &sink{ctx: t.Context()}))
	route, err := d.Resolve(t.Context(), "nse@f", nil)
	require.NoError(t, err)
	require.Equal(t, directory.Floating, route.Way)
	require.Equal(t, "tcp://m:1", route.URL.String())

	_, err = server.Register(t.Context(), &registry.NetworkServiceEndpoint{Name: "nse@f", Url: "::not a URL"})
	require.Error(t, err)
}

func TestDirectory_ForgetsWhatNobodyUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := &found{urls: map[string]string{"nse@b": "tcp://b:1", "other@b": "tcp://b:1"}}
		d := newDirectory(t, new(found), proxy)
		resolve := func(name string) {
			_, err := d.Resolve(t.Context(), name, nil)
			require.NoError(t, err)
		}
		resolve("nse@b")
		for range 10 {
			time.Sleep(50 * time.Minute)
			resolve("nse@b")
		}
		require.Equal(t, 1, proxy.finds, "used, so kept")
		time.Sleep(2 * time.Hour)
		resolve("other@b")
		require.Equal(t, 2, proxy.finds)
		resolve("nse@b")
		require.Equal(t, 3, proxy.finds, "forgotten, so looked up")
	})
}

func TestResolve_ConnectionThatWasThereBeforeIsNotTurned(t *testing.T) {
	d := newDirectory(t, &found{urls: map[string]string{"nse": "tcp://m:1"}}, &found{urls: map[string]string{"nse@b": "tcp://b:1"}})
	route, err := d.Resolve(t.Context(), "nse@b", []string{"proxy-b"})
	require.NoError(t, err)
	require.Equal(t, directory.Outbound, route.Way)
}

// Neither an outage of the registry proxy nor a registration that ran out makes a
// leg of another domain one of this, because of an endpoint of the same bare name.
func TestResolve_ConnectionThatCannotBeLookedUpIsNotTurnedEither(t *testing.T) {
	outbound := []string{"proxy-b", "nsmgr-b", "forwarder-b", "nse"}
	inbound := []string{"nsmgr-7", "forwarder-7", "nse"}
	for name, c := range map[string]struct {
		proxy  *found
		behind []string
		way    directory.Way
		code   codes.Code
	}{
		"outbound, registry proxy down": {&found{err: errors.New("down")}, outbound, 0, codes.Unavailable},
		"outbound, name not known":      {new(found), outbound, 0, codes.FailedPrecondition},
		"inbound, registry proxy down":  {&found{err: errors.New("down")}, inbound, directory.Inbound, codes.OK},
		"inbound, name not known":       {new(found), inbound, directory.Inbound, codes.OK},
		"inbound, it says that it is us": {
			&found{urls: map[string]string{"nse@b": selfURL}}, []string{"nsmgr-8"}, directory.Inbound, codes.OK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirectory(t, &found{urls: map[string]string{"nse": "tcp://m:1", "forwarder-7": "tcp://m:1"}}, c.proxy)
			route, err := d.Resolve(t.Context(), "nse@b", c.behind)
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.Equal(t, c.way, route.Way)
		})
	}
}

func TestAgain_FloatingEndpointThatMovedToAnotherDomainIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := new(found)
		d := newDirectory(t, new(found), proxy)
		server := registrychain.NewNetworkServiceEndpointRegistryServer(directory.NewNetworkServiceEndpointRegistryServer(d), new(taker))
		_, err := server.Register(t.Context(), &registry.NetworkServiceEndpoint{Name: "nse@f", Url: "tcp://m:1"})
		require.NoError(t, err)
		here, err := d.Resolve(t.Context(), "nse@f", nil)
		require.NoError(t, err)
		require.Equal(t, directory.Floating, here.Way)
		again, err := d.Again(t.Context(), here)
		require.NoError(t, err)
		require.Equal(t, here, again, "nobody knows better")

		time.Sleep(time.Minute)
		proxy.urls = map[string]string{"nse@f": "tcp://c:1"}
		again, err = d.Again(t.Context(), here)
		require.NoError(t, err)
		require.Equal(t, directory.Outbound, again.Way)
		require.Equal(t, "tcp://c:1", again.URL.String())
	})
}

func TestResolve_FloatingNameAfterARestartIsFoundByThoseBehindUs(t *testing.T) {
	local := &found{urls: map[string]string{"forwarder-7": "tcp://m:1"}}
	d := newDirectory(t, local, &found{urls: map[string]string{"nse@f": selfURL}})
	route, err := d.Resolve(t.Context(), "nse@f", []string{"nsmgr-7", "forwarder-7", "nse@f"})
	require.NoError(t, err)
	require.Equal(t, directory.Floating, route.Way)
	require.Equal(t, "tcp://m:1", route.URL.String())
	_, err = d.Resolve(t.Context(), "nse@f", []string{"nsmgr-8"})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
}

func TestLookup_ManyWhoAskAtOnceAreOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := &found{urls: map[string]string{"nse@b": "tcp://b:1"}}
		d := newDirectory(t, new(found), proxy)
		route, err := d.Resolve(t.Context(), "nse@b", []string{"proxy-b"})
		require.NoError(t, err)
		for range 100 {
			_, err := d.Again(t.Context(), route)
			require.NoError(t, err)
		}
		require.Equal(t, 1, proxy.finds)
		time.Sleep(2 * time.Second)
		_, err = d.Again(t.Context(), route)
		require.NoError(t, err)
		require.Equal(t, 2, proxy.finds, "but only for a moment")
	})
}

func TestDirectory_BoundsWhatItKeeps(t *testing.T) {
	const flood = 30_000
	d := newDirectory(t, new(found), &found{urls: map[string]string{"first@b": "tcp://b:1"}})
	k := new(taker)
	server := registrychain.NewNetworkServiceEndpointRegistryServer(directory.NewNetworkServiceEndpointRegistryServer(d), k)
	allocated := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := allocated()
	for i := range flood {
		k.nse = &registry.NetworkServiceEndpoint{Name: fmt.Sprintf("nse-%d@b", i), Url: "tcp://b:1"}
		require.NoError(t, server.Find(new(registry.NetworkServiceEndpointQuery), &sink{ctx: t.Context()}))
		_, err := server.Register(t.Context(), k.nse)
		require.NoError(t, err)
	}
	kept := allocated() - before
	t.Logf("%d KiB kept of %d endpoints", kept>>10, flood)
	require.Less(t, kept, int64(8<<20))
	route, err := d.Resolve(t.Context(), fmt.Sprintf("nse-%d@b", flood-1), nil)
	require.NoError(t, err)
	require.Equal(t, directory.Floating, route.Way, "the newest is known")
}

func TestLookup_DoesNotWalkOverOtherAnswers(t *testing.T) {
	// Walking, it takes 20 s.
	const limit = 10 * time.Second
	began := time.Now()
	// In a bubble all look-ups are in the same moment.
	synctest.Test(t, func(t *testing.T) {
		proxy := &found{urls: make(map[string]string)}
		d := newDirectory(t, new(found), proxy)
		for i := range 30_000 {
			_, err := d.Lookup(t.Context(), fmt.Sprintf("nse-%d@b", i), directory.Outbound)
			require.Equal(t, codes.FailedPrecondition, status.Code(err))
		}
	})
	require.Less(t, time.Since(began), limit)
}

// blank is a registry that answers with nothing in it between two endpoints.
type blank struct {
	registry.NetworkServiceEndpointRegistryServer
}

func (blank) Find(_ *registry.NetworkServiceEndpointQuery, s registry.NetworkServiceEndpointRegistry_FindServer) error {
	for _, r := range []*registry.NetworkServiceEndpointResponse{
		{NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: "one@b", Url: "tcp://b:1"}},
		{},
		{Deleted: true},
		{NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: "two@b", Url: "tcp://b:2"}},
	} {
		if err := s.Send(r); err != nil {
			return err
		}
	}
	return nil
}

func TestFind_AnswerWithoutAnEndpointIsLeftOut(t *testing.T) {
	d := newDirectory(t, new(found), new(found))
	server := registrychain.NewNetworkServiceEndpointRegistryServer(directory.NewNetworkServiceEndpointRegistryServer(d), blank{})
	s := &sink{ctx: t.Context()}
	require.NoError(t, server.Find(new(registry.NetworkServiceEndpointQuery), s))
	require.Equal(t, "two@b", s.last.GetNetworkServiceEndpoint().GetName())
	require.Equal(t, 2, s.sent)
}

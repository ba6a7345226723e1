package guard_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/common/grpcmetadata"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

// answerer is a registry that answers what it is told to.
type answerer struct {
	registry.NetworkServiceEndpointRegistryClient
	nse   *registry.NetworkServiceEndpoint
	path  string
	found []*registry.NetworkServiceEndpointResponse
}

func (a *answerer) header(opts []grpc.CallOption) {
	for _, opt := range opts {
		if h, ok := opt.(grpc.HeaderCallOption); ok && a.path != "" {
			*h.HeaderAddr = metadata.Pairs("path", a.path)
		}
	}
}

func (a *answerer) Register(
	_ context.Context, _ *registry.NetworkServiceEndpoint, opts ...grpc.CallOption,
) (*registry.NetworkServiceEndpoint, error) {
	a.header(opts)
	return a.nse, nil
}

func (a *answerer) Unregister(_ context.Context, _ *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	a.header(opts)
	return new(emptypb.Empty), nil
}

type answers[T any] struct {
	grpc.ClientStream
	list []T
}

func (a *answers[T]) Recv() (next T, err error) {
	if len(a.list) == 0 {
		return next, io.EOF
	}
	next, a.list = a.list[0], a.list[1:]
	return next, nil
}

func (a *answerer) Find(
	context.Context, *registry.NetworkServiceEndpointQuery, ...grpc.CallOption,
) (registry.NetworkServiceEndpointRegistry_FindClient, error) {
	return &answers[*registry.NetworkServiceEndpointResponse]{list: a.found}, nil
}

type serviceAnswerer struct {
	registry.NetworkServiceRegistryClient
	found []*registry.NetworkServiceResponse
}

func (serviceAnswerer) Register(context.Context, *registry.NetworkService, ...grpc.CallOption) (*registry.NetworkService, error) {
	return &registry.NetworkService{Name: "s", Matches: []*registry.Match{nil}}, nil
}

func (a serviceAnswerer) Find(
	context.Context, *registry.NetworkServiceQuery, ...grpc.CallOption,
) (registry.NetworkServiceRegistry_FindClient, error) {
	return &answers[*registry.NetworkServiceResponse]{list: a.found}, nil
}

func TestAnswer_OfTheEndpointRegistry(t *testing.T) {
	for field, a := range map[string]answerer{
		"":                             {path: `{"Index":1,"PathSegments":[{"token":"a.b.c"},{"token":"d.e.f"}]}`},
		"header path: missing":         {path: "null"},
		"header path: not a path":      {path: "{"},
		"header path: index 2 of 1":    {path: `{"Index":2,"PathSegments":[{}]}`},
		"header path: segment 1":       {path: `{"PathSegments":[{},null]}`},
		"header path: 200 segments":    {path: `{"PathSegments":[{}` + strings.Repeat(",{}", 199) + `]}`},
		"header path: segment 0: 9000": {path: `{"PathSegments":[{"token":"` + strings.Repeat("x", 9000) + `"}]}`},
		"network_service_endpoint":     {nse: nil},
		"name: missing":                {nse: new(registry.NetworkServiceEndpoint)},
		"url: not a URL":               {nse: &registry.NetworkServiceEndpoint{Name: "nse", Url: "::"}},
	} {
		t.Run(field, func(t *testing.T) {
			if a.path != "" {
				a.nse = &registry.NetworkServiceEndpoint{Name: "nse"}
			}
			path := &grpcmetadata.Path{PathSegments: []*grpcmetadata.PathSegment{{Token: "ours"}}}
			ctx := grpcmetadata.PathWithContext(t.Context(), path)
			client := next.NewNetworkServiceEndpointRegistryClient(
				grpcmetadata.NewNetworkServiceEndpointRegistryClient(), guard.NewNetworkServiceEndpointRegistryClient(), &a)
			_, register := client.Register(ctx, &registry.NetworkServiceEndpoint{Name: "nse"})
			if field == "" {
				require.NoError(t, register)
				require.EqualValues(t, 1, path.Index)
				return
			}
			require.Equal(t, codes.Internal, status.Code(register), "%v", register)
			require.ErrorContains(t, register, field)
			require.Len(t, path.PathSegments, 1, "nothing of it is taken over")
			if a.path != "" {
				_, unregister := client.Unregister(ctx, &registry.NetworkServiceEndpoint{Name: "nse"})
				require.Equal(t, codes.Internal, status.Code(unregister), "%v", unregister)
				require.ErrorContains(t, unregister, field)
			}
		})
	}
}

func TestAnswer_MalformedOnesAreLeftOutOfASearch(t *testing.T) {
	good := &registry.NetworkServiceEndpointResponse{NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: "nse"}}
	client := next.NewNetworkServiceEndpointRegistryClient(guard.NewNetworkServiceEndpointRegistryClient(), &answerer{
		found: []*registry.NetworkServiceEndpointResponse{
			{}, nil, {NetworkServiceEndpoint: new(registry.NetworkServiceEndpoint)}, {Deleted: true}, good, {},
		},
	})
	found, err := client.Find(t.Context(), new(registry.NetworkServiceEndpointQuery))
	require.NoError(t, err)
	response, err := found.Recv()
	require.NoError(t, err)
	require.Equal(t, good, response)
	_, err = found.Recv()
	require.ErrorIs(t, err, io.EOF)

	one := &registry.NetworkServiceResponse{NetworkService: &registry.NetworkService{Name: "s"}}
	services := next.NewNetworkServiceRegistryClient(guard.NewNetworkServiceRegistryClient(),
		serviceAnswerer{found: []*registry.NetworkServiceResponse{{}, one}})
	foundServices, err := services.Find(t.Context(), new(registry.NetworkServiceQuery))
	require.NoError(t, err)
	service, err := foundServices.Recv()
	require.NoError(t, err)
	require.Equal(t, one, service)
	_, err = services.Register(t.Context(), one.GetNetworkService())
	require.Equal(t, codes.Internal, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "matches[0]")
}

// FuzzAnsweredPath looks for a path in an answer that the elements behind cannot
// take.
func FuzzAnsweredPath(f *testing.F) {
	for _, path := range []string{
		`{"Index":1,"PathSegments":[{"token":"a.b.c"},{"token":"d.e.f"}]}`, `null`, `{}`, `[]`, `{"PathSegments":[null]}`,
		`{"Index":4294967295,"PathSegments":[{}]}`, `{"PathSegments":null}`, `{"index":1,"pathsegments":[{"TOKEN":"x"},{}]}`,
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, answered string) {
		path := new(grpcmetadata.Path)
		client := next.NewNetworkServiceEndpointRegistryClient(
			grpcmetadata.NewNetworkServiceEndpointRegistryClient(), guard.NewNetworkServiceEndpointRegistryClient(),
			&answerer{path: answered, nse: &registry.NetworkServiceEndpoint{Name: "nse"}})
		ctx := grpcmetadata.PathWithContext(t.Context(), path)
		if _, err := client.Register(ctx, &registry.NetworkServiceEndpoint{Name: "nse"}); err != nil {
			require.Equal(t, codes.Internal, status.Code(err))
			require.Empty(t, path.PathSegments)
			return
		}
		require.Len(t, path.Clone().PathSegments, len(path.PathSegments))
		require.True(t, path.Index == 0 || path.GetCurrentPathSegment() != nil)
	})
}

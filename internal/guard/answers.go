package guard

import (
	"context"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// checkAnswer judges what a registry answered a Register or Unregister, beginning
// with what has been found in its message. Whoever called us has done nothing
// wrong, so it is Internal, naming the field.
func checkAnswer(header metadata.MD, found ...error) error {
	err := first(append(found, checkAnsweredPath(header))...)
	if err != nil {
		return status.Errorf(codes.Internal, "in the registry's answer: %v", err)
	}
	return nil
}

// checkAnsweredPath looks at the path that comes back beside a registration, in
// the place of the one that was sent.
func checkAnsweredPath(header metadata.MD) error {
	path, err := pathOf(header)
	switch {
	case err != nil:
		return err
	case path == nil && len(header.Get(pathHeader)) > 0:
		return faulty("header path", "missing")
	case path == nil:
		return nil
	}
	return checkPathOf(path)
}

type nseClient struct{}

// NewNetworkServiceEndpointRegistryClient is the last element before the endpoint
// registry that is asked. It refuses malformed answers to Register and
// Unregister, before any element has taken anything from them, and leaves
// malformed endpoints out of what a Find returns.
func NewNetworkServiceEndpointRegistryClient() registry.NetworkServiceEndpointRegistryClient {
	return nseClient{}
}

func (nseClient) Register(
	ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption,
) (*registry.NetworkServiceEndpoint, error) {
	var header metadata.MD
	answer, err := next.NetworkServiceEndpointRegistryClient(ctx).Register(ctx, nse, append(opts, grpc.Header(&header))...)
	if err == nil {
		err = checkAnswer(header, checkNamedEndpoint(answer))
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (nseClient) Find(
	ctx context.Context, query *registry.NetworkServiceEndpointQuery, opts ...grpc.CallOption,
) (registry.NetworkServiceEndpointRegistry_FindClient, error) {
	found, err := next.NetworkServiceEndpointRegistryClient(ctx).Find(ctx, query, opts...)
	if err != nil {
		return nil, err
	}
	return foundEndpoints{NetworkServiceEndpointRegistry_FindClient: found, ctx: ctx}, nil
}

func (nseClient) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	var header metadata.MD
	answer, err := next.NetworkServiceEndpointRegistryClient(ctx).Unregister(ctx, nse, append(opts, grpc.Header(&header))...)
	if err == nil {
		err = checkAnswer(header)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func checkNamedEndpoint(nse *registry.NetworkServiceEndpoint) error {
	return first(checkEndpoint("", nse), name("name", nse.GetName()))
}

type foundEndpoints struct {
	registry.NetworkServiceEndpointRegistry_FindClient
	ctx context.Context
}

// Recv is called in a goroutine of the SDK's, where nobody else recovers.
func (f foundEndpoints) Recv() (_ *registry.NetworkServiceEndpointResponse, err error) {
	defer recovered(f.ctx, "an answer of the endpoint registry", &err)
	for {
		response, err := f.NetworkServiceEndpointRegistry_FindClient.Recv()
		if err != nil {
			return nil, err
		}
		if err = checkNamedEndpoint(response.GetNetworkServiceEndpoint()); err == nil {
			return response, nil
		}
		log.FromContext(f.ctx).Warnf("an endpoint that was found is left out: %v", err)
	}
}

type nsClient struct{}

// NewNetworkServiceRegistryClient is the last element before the network service
// registry that is asked, with the same promise.
func NewNetworkServiceRegistryClient() registry.NetworkServiceRegistryClient { return nsClient{} }

func (nsClient) Register(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*registry.NetworkService, error) {
	var header metadata.MD
	answer, err := next.NetworkServiceRegistryClient(ctx).Register(ctx, ns, append(opts, grpc.Header(&header))...)
	if err == nil {
		err = checkAnswer(header, checkNamedService(answer))
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (nsClient) Find(
	ctx context.Context, query *registry.NetworkServiceQuery, opts ...grpc.CallOption,
) (registry.NetworkServiceRegistry_FindClient, error) {
	found, err := next.NetworkServiceRegistryClient(ctx).Find(ctx, query, opts...)
	if err != nil {
		return nil, err
	}
	return foundServices{NetworkServiceRegistry_FindClient: found, ctx: ctx}, nil
}

func (nsClient) Unregister(ctx context.Context, ns *registry.NetworkService, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	var header metadata.MD
	answer, err := next.NetworkServiceRegistryClient(ctx).Unregister(ctx, ns, append(opts, grpc.Header(&header))...)
	if err == nil {
		err = checkAnswer(header)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func checkNamedService(ns *registry.NetworkService) error {
	return first(checkService("", ns), name("name", ns.GetName()))
}

type foundServices struct {
	registry.NetworkServiceRegistry_FindClient
	ctx context.Context
}

// Recv is called in a goroutine of the SDK's, where nobody else recovers.
func (f foundServices) Recv() (_ *registry.NetworkServiceResponse, err error) {
	defer recovered(f.ctx, "an answer of the service registry", &err)
	for {
		response, err := f.NetworkServiceRegistry_FindClient.Recv()
		if err != nil {
			return nil, err
		}
		if err = checkNamedService(response.GetNetworkService()); err == nil {
			return response, nil
		}
		log.FromContext(f.ctx).Warnf("a network service that was found is left out: %v", err)
	}
}

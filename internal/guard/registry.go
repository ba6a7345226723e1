package guard

import (
	"context"
	"fmt"
	"net/url"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/networkservicemesh/sdk/pkg/registry/core/streamcontext"
	"google.golang.org/protobuf/types/known/emptypb"
)

type nseServer struct{ log *Log }

// NewNetworkServiceEndpointRegistryServer is the first element of the endpoint
// registry's chain. What the elements behind it log of a call goes to l.
func NewNetworkServiceEndpointRegistryServer(l *Log) registry.NetworkServiceEndpointRegistryServer {
	return nseServer{log: l}
}

func (s nseServer) Register(ctx context.Context, nse *registry.NetworkServiceEndpoint) (_ *registry.NetworkServiceEndpoint, err error) {
	ctx = s.log.in(ctx)
	defer s.log.failed(ctx, "NetworkServiceEndpointRegistry/Register", "endpoint", nse.GetName(), &err)
	defer recovered(ctx, "NetworkServiceEndpointRegistry/Register", &err)
	if err := first(checkCall(ctx), checkPathHeader(ctx), checkEndpoint("", nse), domainName("name", nse.GetName())); err != nil {
		return nil, err
	}
	return next.NetworkServiceEndpointRegistryServer(ctx).Register(ctx, nse)
}

func (s nseServer) Find(query *registry.NetworkServiceEndpointQuery, found registry.NetworkServiceEndpointRegistry_FindServer) (err error) {
	ctx := s.log.in(found.Context())
	defer s.log.failed(ctx, "NetworkServiceEndpointRegistry/Find", "endpoint", query.GetNetworkServiceEndpoint().GetName(), &err)
	defer recovered(ctx, "NetworkServiceEndpointRegistry/Find", &err)
	if err := checkEndpoint("network_service_endpoint", query.GetNetworkServiceEndpoint()); err != nil {
		return err
	}
	found = streamcontext.NetworkServiceEndpointRegistryFindServer(ctx, found)
	return next.NetworkServiceEndpointRegistryServer(ctx).Find(query, found)
}

func (s nseServer) Unregister(ctx context.Context, nse *registry.NetworkServiceEndpoint) (_ *emptypb.Empty, err error) {
	ctx = s.log.in(ctx)
	defer s.log.failed(ctx, "NetworkServiceEndpointRegistry/Unregister", "endpoint", nse.GetName(), &err)
	defer recovered(ctx, "NetworkServiceEndpointRegistry/Unregister", &err)
	if err := first(checkCall(ctx), checkPathHeader(ctx), checkEndpoint("", nse), domainName("name", nse.GetName())); err != nil {
		return nil, err
	}
	return next.NetworkServiceEndpointRegistryServer(ctx).Unregister(ctx, nse)
}

type nsServer struct{ log *Log }

// NewNetworkServiceRegistryServer is the first element of the network service
// registry's chain. What the elements behind it log of a call goes to l.
func NewNetworkServiceRegistryServer(l *Log) registry.NetworkServiceRegistryServer {
	return nsServer{log: l}
}

func (s nsServer) Register(ctx context.Context, ns *registry.NetworkService) (_ *registry.NetworkService, err error) {
	ctx = s.log.in(ctx)
	defer s.log.failed(ctx, "NetworkServiceRegistry/Register", "service", ns.GetName(), &err)
	defer recovered(ctx, "NetworkServiceRegistry/Register", &err)
	if err := first(checkCall(ctx), checkPathHeader(ctx), checkService("", ns), domainName("name", ns.GetName())); err != nil {
		return nil, err
	}
	return next.NetworkServiceRegistryServer(ctx).Register(ctx, ns)
}

func (s nsServer) Find(query *registry.NetworkServiceQuery, found registry.NetworkServiceRegistry_FindServer) (err error) {
	ctx := s.log.in(found.Context())
	defer s.log.failed(ctx, "NetworkServiceRegistry/Find", "service", query.GetNetworkService().GetName(), &err)
	defer recovered(ctx, "NetworkServiceRegistry/Find", &err)
	if err := checkService("network_service", query.GetNetworkService()); err != nil {
		return err
	}
	found = streamcontext.NetworkServiceRegistryFindServer(ctx, found)
	return next.NetworkServiceRegistryServer(ctx).Find(query, found)
}

func (s nsServer) Unregister(ctx context.Context, ns *registry.NetworkService) (_ *emptypb.Empty, err error) {
	ctx = s.log.in(ctx)
	defer s.log.failed(ctx, "NetworkServiceRegistry/Unregister", "service", ns.GetName(), &err)
	defer recovered(ctx, "NetworkServiceRegistry/Unregister", &err)
	if err := first(checkCall(ctx), checkPathHeader(ctx), checkService("", ns), domainName("name", ns.GetName())); err != nil {
		return nil, err
	}
	return next.NetworkServiceRegistryServer(ctx).Unregister(ctx, ns)
}

// in is the name of a field in a message, or by itself at the top.
func in(message, field string) string {
	if message == "" {
		return field
	}
	return message + "." + field
}

func checkEndpoint(field string, nse *registry.NetworkServiceEndpoint) error {
	if nse == nil {
		return faulty("network_service_endpoint", "missing")
	}
	if err := first(
		text(in(field, "name"), nse.GetName(), maxName),
		checkURL(in(field, "url"), nse.GetUrl()),
		expiry(in(field, "expiration_time"), nse.GetExpirationTime()),
		expiry(in(field, "initial_registration_time"), nse.GetInitialRegistrationTime()),
		count(in(field, "network_service_names"), len(nse.GetNetworkServiceNames())),
		count(in(field, "network_service_labels"), len(nse.GetNetworkServiceLabels())),
		count(in(field, "path_ids"), len(nse.GetPathIds())),
	); err != nil {
		return err
	}
	for i, service := range nse.GetNetworkServiceNames() {
		if err := text(in(field, fmt.Sprintf("network_service_names[%d]", i)), service, maxName); err != nil {
			return err
		}
	}
	for i, id := range nse.GetPathIds() {
		if err := text(in(field, fmt.Sprintf("path_ids[%d]", i)), id, maxValue); err != nil {
			return err
		}
	}
	for service, l := range nse.GetNetworkServiceLabels() {
		if err := first(
			text(in(field, "network_service_labels"), service, maxName),
			labels(in(field, "network_service_labels"), l.GetLabels()),
		); err != nil {
			return err
		}
		if l == nil {
			return faulty(in(field, "network_service_labels"), "an entry is missing")
		}
	}
	return nil
}

func checkURL(field, raw string) error {
	if err := text(field, raw, maxURL); err != nil {
		return err
	}
	if _, err := url.Parse(raw); err != nil {
		return faulty(field, "not a URL")
	}
	return nil
}

func checkService(field string, ns *registry.NetworkService) error {
	if ns == nil {
		return faulty("network_service", "missing")
	}
	if err := first(
		text(in(field, "name"), ns.GetName(), maxName),
		text(in(field, "payload"), ns.GetPayload(), maxName),
		count(in(field, "matches"), len(ns.GetMatches())),
		count(in(field, "path_ids"), len(ns.GetPathIds())),
	); err != nil {
		return err
	}
	for i, id := range ns.GetPathIds() {
		if err := text(in(field, fmt.Sprintf("path_ids[%d]", i)), id, maxValue); err != nil {
			return err
		}
	}
	for i, match := range ns.GetMatches() {
		field := in(field, fmt.Sprintf("matches[%d]", i))
		if match == nil {
			return faulty(field, "missing")
		}
		if err := first(
			labels(field+".metadata.labels", match.GetMetadata().GetLabels()),
			labels(field+".source_selector", match.GetSourceSelector()),
			count(field+".routes", len(match.GetRoutes())),
		); err != nil {
			return err
		}
		for j, route := range match.GetRoutes() {
			if route == nil {
				return faulty(fmt.Sprintf("%s.routes[%d]", field, j), "missing")
			}
			if err := labels(fmt.Sprintf("%s.routes[%d].destination_selector", field, j), route.GetDestinationSelector()); err != nil {
				return err
			}
		}
	}
	return nil
}

package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/chain"
	registrychain "github.com/networkservicemesh/sdk/pkg/registry/core/chain"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/monitorconnection/next"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

// behind takes what the guard lets through, or panics.
type behind struct {
	registry.NetworkServiceEndpointRegistryServer
	passed int
	panics bool
}

func (b *behind) pass() {
	b.passed++
	if b.panics {
		panic("on request")
	}
}

func (b *behind) Request(_ context.Context, r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	b.pass()
	return r.GetConnection(), nil
}

func (b *behind) Close(context.Context, *networkservice.Connection) (*emptypb.Empty, error) {
	b.pass()
	return new(emptypb.Empty), nil
}

func (b *behind) MonitorConnections(*networkservice.MonitorScopeSelector, networkservice.MonitorConnection_MonitorConnectionsServer) error {
	b.pass()
	return nil
}

func (b *behind) Register(_ context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	b.pass()
	return nse, nil
}

func (b *behind) Unregister(context.Context, *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	b.pass()
	return new(emptypb.Empty), nil
}

func (b *behind) Find(*registry.NetworkServiceEndpointQuery, registry.NetworkServiceEndpointRegistry_FindServer) error {
	b.pass()
	return nil
}

type services struct {
	registry.NetworkServiceRegistryServer
	*behind
}

func (s services) Register(_ context.Context, ns *registry.NetworkService) (*registry.NetworkService, error) {
	s.pass()
	return ns, nil
}

func (s services) Unregister(context.Context, *registry.NetworkService) (*emptypb.Empty, error) {
	s.pass()
	return new(emptypb.Empty), nil
}

func (s services) Find(*registry.NetworkServiceQuery, registry.NetworkServiceRegistry_FindServer) error {
	s.pass()
	return nil
}

func quietly() *guard.Log { return guard.NewLog(log.Empty()) }

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

type monitorStream struct {
	stream
	networkservice.MonitorConnection_MonitorConnectionsServer
}

func (s monitorStream) Context() context.Context { return s.ctx }

type nseStream struct {
	stream
	registry.NetworkServiceEndpointRegistry_FindServer
}

func (s nseStream) Context() context.Context { return s.ctx }

type nsStream struct {
	stream
	registry.NetworkServiceRegistry_FindServer
}

func (s nsStream) Context() context.Context { return s.ctx }

func good() *networkservice.NetworkServiceRequest {
	return &networkservice.NetworkServiceRequest{
		MechanismPreferences: []*networkservice.Mechanism{{Cls: "REMOTE", Type: "VXLAN"}},
		Connection: &networkservice.Connection{
			Id: "b", NetworkService: "service@cluster2", NetworkServiceEndpointName: "endpoint@cluster2",
			Labels: map[string]string{"a": "b"},
			Path: &networkservice.Path{Index: 1, PathSegments: []*networkservice.PathSegment{
				{Name: "A", Id: "a", Token: "aGVhZA.Ym9keQ.c2ln", Expires: timestamppb.New(time.Now().Add(time.Minute))},
				{Name: "B", Id: "b"},
			}},
		},
	}
}

func many(n int) map[string]string {
	m := make(map[string]string)
	for i := range n {
		m[strings.Repeat("x", i+1)] = ""
	}
	return m
}

func TestRequest(t *testing.T) {
	for field, spoil := range map[string]func(r *networkservice.NetworkServiceRequest){
		"":              func(*networkservice.NetworkServiceRequest) {},
		"connection":    func(r *networkservice.NetworkServiceRequest) { r.Connection = nil },
		"connection.id": func(r *networkservice.NetworkServiceRequest) { r.Connection.Id = "" },
		"connection.id: not the id of the path segment": func(r *networkservice.NetworkServiceRequest) { r.Connection.Id = "x" },
		"connection.id: control character":              func(r *networkservice.NetworkServiceRequest) { r.Connection.Id = "a\x00" },
		"connection.path: missing":                      func(r *networkservice.NetworkServiceRequest) { r.Connection.Path = nil },
		"connection.path.index":                         func(r *networkservice.NetworkServiceRequest) { r.Connection.Path.Index = 2 },
		"connection.path.index: 4294967295":             func(r *networkservice.NetworkServiceRequest) { r.Connection.Path.Index = 1<<32 - 1 },
		"connection.path.path_segments[0]: missing":     func(r *networkservice.NetworkServiceRequest) { r.Connection.Path.PathSegments[0] = nil },
		"connection.path.path_segments[0].id":           func(r *networkservice.NetworkServiceRequest) { r.Connection.Path.PathSegments[0].Id = "" },
		"connection.path.path_segments[0].name":         func(r *networkservice.NetworkServiceRequest) { r.Connection.Path.PathSegments[0].Name = "" },
		"connection.path.path_segments[0].token: not a JWT": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.Path.PathSegments[0].Token = "a.b"
		},
		"connection.path.path_segments[0].token: 9000 bytes": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.Path.PathSegments[0].Token = strings.Repeat("x", 9000)
		},
		"connection.path.path_segments[0].expires: more than": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.Path.PathSegments[0].Expires = timestamppb.New(time.Now().Add(100 * 365 * 24 * time.Hour))
		},
		"connection.path.path_segments[0].expires: not a time": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.Path.PathSegments[0].Expires = &timestamppb.Timestamp{Nanos: -1}
		},
		"connection.path.path_segments[0].metrics": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.Path.PathSegments[0].Metrics = many(600)
		},
		"connection.path.path_segments: 5000": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.Path.PathSegments = make([]*networkservice.PathSegment, 5000)
		},
		"connection.network_service_endpoint_name: missing": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.NetworkServiceEndpointName = ""
		},
		"connection.network_service_endpoint_name: more than one @": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.NetworkServiceEndpointName = "a@b@c"
		},
		"connection.network_service_endpoint_name: nothing before": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.NetworkServiceEndpointName = "@b"
		},
		"connection.network_service: 600 bytes": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.NetworkService = strings.Repeat("x", 600)
		},
		"connection.labels":        func(r *networkservice.NetworkServiceRequest) { r.Connection.Labels = many(600) },
		"connection.labels: an":    func(r *networkservice.NetworkServiceRequest) { r.Connection.Labels["a"] = strings.Repeat("x", 5000) },
		"mechanism_preferences[0]": func(r *networkservice.NetworkServiceRequest) { r.MechanismPreferences[0] = nil },
		"mechanism_preferences: 600": func(r *networkservice.NetworkServiceRequest) {
			r.MechanismPreferences = make([]*networkservice.Mechanism, 600)
		},
		"connection.mechanism.parameters": func(r *networkservice.NetworkServiceRequest) {
			r.Connection.Mechanism = &networkservice.Mechanism{Parameters: many(600)}
		},
	} {
		t.Run(field, func(t *testing.T) {
			b := new(behind)
			server := chain.NewNetworkServiceServer(guard.NewServer(quietly()), b)
			r := good()
			spoil(r)
			_, err := server.Request(t.Context(), r)
			if field == "" {
				require.NoError(t, err)
				_, err = server.Close(t.Context(), r.GetConnection())
				require.NoError(t, err)
				require.Equal(t, 2, b.passed)
				return
			}
			require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
			require.ErrorContains(t, err, field)
			require.Zero(t, b.passed)
			if strings.HasPrefix(field, "connection.path") || strings.HasPrefix(field, "connection.id") {
				_, err = server.Close(t.Context(), r.GetConnection())
				require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
				require.Zero(t, b.passed)
			}
		})
	}
}

// What comes beside a Request takes the place of what is in it.
func TestRequest_TokenBesideItKeepsToTheSameLimits(t *testing.T) {
	b := new(behind)
	server := chain.NewNetworkServiceServer(guard.NewServer(quietly()), b)
	const token, expires = "nsm-client-token", "nsm-client-token-expires"
	soon := time.Now().Add(time.Hour).Format(time.RFC3339Nano)
	for name, c := range map[string]struct {
		header []string
		field  string
	}{
		"as the SDK sends it":   {[]string{token, "a.b.c", expires, soon}, ""},
		"none":                  {nil, ""},
		"not a JWT":             {[]string{token, "secret", expires, soon}, token},
		"huge":                  {[]string{token, "a.b." + strings.Repeat("c", 9<<10), expires, soon}, token},
		"two tokens":            {[]string{token, "a.b.c", token, "d.e.f", expires, soon}, token},
		"two expiries":          {[]string{token, "a.b.c", expires, soon, expires, soon}, token},
		"expiry is no time":     {[]string{token, "a.b.c", expires, "tomorrow"}, expires},
		"expiry in 8,000 years": {[]string{token, "a.b.c", expires, "9999-12-31T23:59:59Z"}, expires},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(c.header...))
		b.passed = 0
		_, err := server.Request(ctx, good())
		_, closeErr := server.Close(ctx, good().GetConnection())
		if c.field == "" {
			require.NoError(t, err, name)
			require.NoError(t, closeErr, name)
			require.Equal(t, 2, b.passed)
			continue
		}
		for _, err := range []error{err, closeErr} {
			require.Equal(t, codes.InvalidArgument, status.Code(err), name)
			require.ErrorContains(t, err, "header "+c.field, name)
			require.NotContains(t, err.Error(), "secret", "the value is not repeated")
		}
		require.Zero(t, b.passed, name)
	}
}

func TestMonitorConnections(t *testing.T) {
	for field, selector := range map[string]*networkservice.MonitorScopeSelector{
		"":                      {PathSegments: []*networkservice.PathSegment{{Id: "a"}, {}}, NetworkServices: []string{"s"}},
		"path_segments[0]":      {PathSegments: []*networkservice.PathSegment{nil}},
		"path_segments[1].name": {PathSegments: []*networkservice.PathSegment{{}, {Name: "\n"}}},
		"path_segments: 200":    {PathSegments: make([]*networkservice.PathSegment, 200)},
		"network_services: 600": {NetworkServices: make([]string, 600)},
		"network_services[0]":   {NetworkServices: []string{strings.Repeat("x", 600)}},
	} {
		t.Run(field, func(t *testing.T) {
			b := new(behind)
			server := next.NewMonitorConnectionServer(guard.NewMonitorConnectionServer(quietly()), b)
			err := server.MonitorConnections(selector, monitorStream{stream: stream{ctx: t.Context()}})
			require.Equal(t, field == "", err == nil, "%v", err)
			if err != nil {
				require.Equal(t, codes.InvalidArgument, status.Code(err))
				require.ErrorContains(t, err, field)
				require.Zero(t, b.passed)
			}
		})
	}
}

func TestEndpointRegistry(t *testing.T) {
	for field, nse := range map[string]*registry.NetworkServiceEndpoint{
		"":                            {Name: "a@b", Url: "tcp://1.1.1.1:1", NetworkServiceNames: []string{"s@b"}},
		"network_service_endpoint":    nil,
		"name: more than one @":       {Name: "a@b@c"},
		"url: not a URL":              {Name: "a", Url: "::"},
		"url: 606 bytes":              {Name: "a", Url: "tcp://" + strings.Repeat("x", 600)},
		"expiration_time":             {Name: "a", ExpirationTime: &timestamppb.Timestamp{Nanos: -1}},
		"network_service_names: 600":  {Name: "a", NetworkServiceNames: make([]string, 600)},
		"network_service_names[0]":    {Name: "a", NetworkServiceNames: []string{"\x7f"}},
		"path_ids[0]":                 {Name: "a", PathIds: []string{strings.Repeat("x", 5000)}},
		"network_service_labels":      {Name: "a", NetworkServiceLabels: map[string]*registry.NetworkServiceLabels{"s": nil}},
		"network_service_labels: 600": {Name: "a", NetworkServiceLabels: map[string]*registry.NetworkServiceLabels{"s": {Labels: many(600)}}},
		"name: missing":               {},
	} {
		t.Run(field, func(t *testing.T) {
			b := new(behind)
			server := registrychain.NewNetworkServiceEndpointRegistryServer(guard.NewNetworkServiceEndpointRegistryServer(quietly()), b)
			_, register := server.Register(t.Context(), nse)
			_, unregister := server.Unregister(t.Context(), nse)
			find := server.Find(&registry.NetworkServiceEndpointQuery{NetworkServiceEndpoint: nse}, nseStream{stream: stream{ctx: t.Context()}})
			if field == "" {
				require.NoError(t, register)
				require.NoError(t, unregister)
				require.NoError(t, find)
				return
			}
			for _, err := range []error{register, unregister} {
				require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
				require.ErrorContains(t, err, field)
			}
			if !strings.HasPrefix(field, "name") { // a search may leave it out
				require.Equal(t, codes.InvalidArgument, status.Code(find), "%v", find)
				require.Zero(t, b.passed)
			}
		})
	}
}

func TestServiceRegistry(t *testing.T) {
	for field, ns := range map[string]*registry.NetworkService{
		"":                              {Name: "a@b", Payload: "IP"},
		"network_service":               nil,
		"name: missing":                 {},
		"payload":                       {Name: "a", Payload: strings.Repeat("x", 600)},
		"matches[0]":                    {Name: "a", Matches: []*registry.Match{nil}},
		"matches[0].routes[0]: missing": {Name: "a", Matches: []*registry.Match{{Routes: []*registry.Destination{nil}}}},
		"matches[0].routes[0].destination_selector": {Name: "a", Matches: []*registry.Match{{Routes: []*registry.Destination{{DestinationSelector: many(600)}}}}},
		"matches[0].source_selector: 600":           {Name: "a", Matches: []*registry.Match{{SourceSelector: many(600)}}},
	} {
		t.Run(field, func(t *testing.T) {
			s := services{behind: new(behind)}
			server := registrychain.NewNetworkServiceRegistryServer(guard.NewNetworkServiceRegistryServer(quietly()), s)
			_, register := server.Register(t.Context(), ns)
			_, unregister := server.Unregister(t.Context(), ns)
			find := server.Find(&registry.NetworkServiceQuery{NetworkService: ns}, nsStream{stream: stream{ctx: t.Context()}})
			if field == "" {
				require.NoError(t, register)
				require.NoError(t, unregister)
				require.NoError(t, find)
				return
			}
			require.Equal(t, codes.InvalidArgument, status.Code(register), "%v", register)
			require.Equal(t, codes.InvalidArgument, status.Code(unregister), "%v", unregister)
			require.ErrorContains(t, register, field)
			if !strings.HasPrefix(field, "name") {
				require.Equal(t, codes.InvalidArgument, status.Code(find), "%v", find)
				require.Zero(t, s.passed)
			}
		})
	}
}

func TestPanic_BecomesInternal(t *testing.T) {
	b := &behind{panics: true}
	before := guard.Panics()
	server := chain.NewNetworkServiceServer(guard.NewServer(quietly()), b)
	_, err := server.Request(t.Context(), good())
	require.Equal(t, codes.Internal, status.Code(err), "%v", err)
	_, err = server.Close(t.Context(), good().GetConnection())
	require.Equal(t, codes.Internal, status.Code(err), "%v", err)
	err = next.NewMonitorConnectionServer(guard.NewMonitorConnectionServer(quietly()), b).MonitorConnections(nil, monitorStream{stream: stream{ctx: t.Context()}})
	require.Equal(t, codes.Internal, status.Code(err), "%v", err)
	nses := registrychain.NewNetworkServiceEndpointRegistryServer(guard.NewNetworkServiceEndpointRegistryServer(quietly()), b)
	_, err = nses.Register(t.Context(), &registry.NetworkServiceEndpoint{Name: "a"})
	require.Equal(t, codes.Internal, status.Code(err), "%v", err)
	require.Equal(t, before+4, guard.Panics())

	done := make(chan struct{})
	go func() {
		defer close(done)
		defer guard.Recover(t.Context(), "goroutine")
		b.pass()
	}()
	<-done
	require.Equal(t, before+5, guard.Panics())
}

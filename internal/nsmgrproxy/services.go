package nsmgrproxy

import (
	"context"
	"errors"
	"io"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/park"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/warm"
)

// registerServices adds the services and their health, under the names of the stock
// proxy. All their methods are streams to gRPC, which on the wire is the same: a call
// that gRPC takes for one with one message each way has its message read and decoded
// before any interceptor can refuse it. The API's generated code knows no other way, so
// its descriptions are here again; a test holds the two against each other.
func registerServices(r grpc.ServiceRegistrar, s nsmgr.Nsmgr, work *warm.Pool) {
	endpoints, services := s.NetworkServiceEndpointRegistryServer(), s.NetworkServiceRegistryServer()
	health := guard.NewHealth(s, endpoints, services)
	add := func(service string, methods ...grpc.StreamDesc) {
		for i, m := range methods {
			if !m.ServerStreams {
				methods[i].Handler = warmed(work, "/"+service+"/"+m.StreamName, m.Handler)
			}
		}
		r.RegisterService(&grpc.ServiceDesc{ServiceName: service, Streams: methods}, nil)
	}
	add("networkservice.NetworkService", one("Request", s.Request), one("Close", s.Close))
	subscriptions := many("MonitorConnections",
		func(in *networkservice.MonitorScopeSelector, out sender[*networkservice.ConnectionEvent]) error {
			return s.MonitorConnections(in, out)
		})
	subscriptions.Handler = parked(work, subscriptions.StreamName, subscriptions.Handler)
	add("connection.MonitorConnection", subscriptions)
	add("registry.NetworkServiceRegistry", one("Register", services.Register), one("Unregister", services.Unregister), many("Find",
		func(in *registry.NetworkServiceQuery, out sender[*registry.NetworkServiceResponse]) error {
			return services.Find(in, out)
		}))
	add("registry.NetworkServiceEndpointRegistry", one("Register", endpoints.Register), one("Unregister", endpoints.Unregister), many("Find",
		func(in *registry.NetworkServiceEndpointQuery, out sender[*registry.NetworkServiceEndpointResponse]) error {
			return endpoints.Find(in, out)
		}))
	add("grpc.health.v1.Health", one("Check", health.Check), one("List", health.List), many("Watch",
		func(in *grpc_health_v1.HealthCheckRequest, out sender[*grpc_health_v1.HealthCheckResponse]) error {
			return health.Watch(in, out)
		}))
}

// warmed has calls that end soon served by goroutines that have served others.
func warmed(work *warm.Pool, method string, handler grpc.StreamHandler) grpc.StreamHandler {
	panicked := panicked(method)
	return func(srv any, ss grpc.ServerStream) error {
		err := panicked
		work.Run(method, func() { err = handler(srv, ss) })
		return err
	}
}

// parked has streams that last begun by such a goroutine, and waited for by their own. What
// one has left that fails all the same is given up.
func parked(work *warm.Pool, method string, handler grpc.StreamHandler) grpc.StreamHandler {
	panicked := panicked(method)
	return func(srv any, ss grpc.ServerStream) (err error) {
		ctx, place := park.With(ss.Context())
		defer guard.Recover(ctx, method)
		err = panicked
		work.Run(method, func() { err = handler(srv, within{ss, ctx}) })
		if err != nil {
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_ = place.Wait(gone)
			return err
		}
		err = panicked // unless the wait returns
		return place.Wait(ctx)
	}
}

// panicked is for what is past the guard.
func panicked(method string) error {
	return status.Error(codes.Internal, "nsmgr-proxy: "+method+" panicked")
}

// within is a stream with another context.
type within struct {
	grpc.ServerStream
	ctx context.Context
}

func (w within) Context() context.Context { return w.ctx }

// one is a method with one message each way.
func one[In, Out any](name string, call func(context.Context, *In) (Out, error)) grpc.StreamDesc {
	// As with other such methods, nobody waits for the end behind the message.
	return grpc.StreamDesc{StreamName: name, ClientStreams: true, Handler: func(_ any, ss grpc.ServerStream) error {
		in, err := receive[In](ss)
		if err != nil {
			return err
		}
		answer, err := call(ss.Context(), in)
		if err != nil {
			return err
		}
		return ss.SendMsg(answer)
	}}
}

// many is a method with a stream of answers.
func many[In, Out any](name string, call func(*In, sender[Out]) error) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(_ any, ss grpc.ServerStream) error {
		in, err := receive[In](ss)
		if err != nil {
			return err
		}
		return call(in, sender[Out]{ss})
	}}
}

func receive[In any](ss grpc.ServerStream) (*In, error) {
	in := new(In)
	err := ss.RecvMsg(in)
	if errors.Is(err, io.EOF) {
		return nil, status.Error(codes.Internal, "nsmgr-proxy: a call without a message")
	}
	return in, err
}

// sender is the server's side of a stream of messages.
type sender[Out any] struct{ grpc.ServerStream }

func (s sender[Out]) Send(m Out) error { return s.SendMsg(m) }

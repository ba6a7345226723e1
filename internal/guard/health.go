package guard

import (
	"github.com/networkservicemesh/api/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// healthServer is gRPC's, but for one thing: that one remembers every name that
// anybody has ever watched.
type healthServer struct {
	*health.Server
	known map[string]bool
}

// NewHealth is the health of the services that impls implement, under the names that
// the SDK gives them, and of the process as a whole under "".
func NewHealth(impls ...any) grpc_health_v1.HealthServer {
	h := &healthServer{Server: health.NewServer(), known: map[string]bool{"": true}}
	for _, impl := range impls {
		for _, name := range api.ServiceNames(impl) {
			h.known[name] = true
			h.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
		}
	}
	return h
}

// Watch answers NotFound for a name that is no service of ours. The protocol lets
// a server wait for it to become one; ours never will.
func (h *healthServer) Watch(request *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	if !h.known[request.GetService()] {
		return status.Error(codes.NotFound, "unknown service")
	}
	return h.Server.Watch(request, stream)
}

package guard

import (
	"context"
	"fmt"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	monitornext "github.com/networkservicemesh/sdk/pkg/tools/monitorconnection/next"
	"github.com/networkservicemesh/sdk/pkg/tools/monitorconnection/streamcontext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/park"
)

type server struct{ log *Log }

// NewServer is the first element of the chain. What the elements behind it log of
// a call goes to l.
func NewServer(l *Log) networkservice.NetworkServiceServer { return server{log: l} }

func (s server) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (conn *networkservice.Connection, err error) {
	ctx = s.log.in(ctx)
	defer s.log.failed(ctx, "Request", "connection", request.GetConnection().GetId(), &err)
	defer recovered(ctx, "Request", &err)
	if err := first(checkCall(ctx), checkRequest(request)); err != nil {
		return nil, err
	}
	return next.Server(ctx).Request(ctx, request)
}

func (s server) Close(ctx context.Context, conn *networkservice.Connection) (_ *emptypb.Empty, err error) {
	ctx = s.log.in(ctx)
	defer s.log.failed(ctx, "Close", "connection", conn.GetId(), &err)
	defer recovered(ctx, "Close", &err)
	if err := first(checkCall(ctx), CheckConnection(conn)); err != nil {
		return nil, err
	}
	return next.Server(ctx).Close(ctx, conn)
}

type monitorServer struct{ log *Log }

// NewMonitorConnectionServer is the first element of the monitor chain.
func NewMonitorConnectionServer(l *Log) networkservice.MonitorConnectionServer {
	return monitorServer{log: l}
}

func (s monitorServer) MonitorConnections(
	selector *networkservice.MonitorScopeSelector, stream networkservice.MonitorConnection_MonitorConnectionsServer,
) (err error) {
	ctx := s.log.in(stream.Context())
	defer func() { park.Then(ctx, err, func(err error) { s.ended(ctx, err) }) }()
	defer recovered(ctx, monitorCall, &err)
	if err := checkSelector(selector); err != nil {
		return err
	}
	stream = streamcontext.MonitorConnectionMonitorConnectionsServer(ctx, stream)
	return monitornext.MonitorConnectionServer(ctx).MonitorConnections(selector, stream)
}

const monitorCall = "MonitorConnections"

// ended tells of subscriptions that failed. One whose subscriber has left, or that
// ends because we do, has not.
func (s monitorServer) ended(ctx context.Context, err error) {
	if err != nil && (ctx.Err() != nil || status.Code(err) == codes.Unavailable) {
		s.log.Debugf("%s ended: %v", monitorCall, err)
		return
	}
	s.log.failed(ctx, monitorCall, "", "", &err)
}

func checkRequest(request *networkservice.NetworkServiceRequest) error {
	if err := CheckConnection(request.GetConnection()); err != nil {
		return err
	}
	conn := request.GetConnection()
	if err := first(
		domainName("connection.network_service_endpoint_name", conn.GetNetworkServiceEndpointName()),
		count("mechanism_preferences", len(request.GetMechanismPreferences())),
	); err != nil {
		return err
	}
	for i, m := range request.GetMechanismPreferences() {
		if err := checkMechanism(m); err != nil {
			return within(fmt.Sprintf("mechanism_preferences[%d]", i), err)
		}
	}
	return nil
}

// CheckConnection holds a connection, of a caller or of a far side, to the limits. The
// error names the field, and is InvalidArgument to those who only know gRPC.
func CheckConnection(conn *networkservice.Connection) error {
	if conn == nil {
		return faulty("connection", "missing")
	}
	if err := first(
		name("connection.id", conn.GetId()),
		checkPath(conn.GetPath(), conn.GetId()),
		text("connection.network_service", conn.GetNetworkService(), maxName),
		text("connection.network_service_endpoint_name", conn.GetNetworkServiceEndpointName(), maxName),
		text("connection.payload", conn.GetPayload(), maxName),
		labels("connection.labels", conn.GetLabels()),
		checkContext(conn.GetContext()),
	); err != nil {
		return err
	}
	if conn.GetMechanism() == nil {
		return nil
	}
	return within("connection.mechanism", checkMechanism(conn.GetMechanism()))
}

// checkContext bounds what client and endpoint agree on between themselves. What
// is in it is theirs.
func checkContext(c *networkservice.ConnectionContext) error {
	if size := proto.Size(c); size > maxContext {
		return faulty("connection.context", "%d bytes, more than %d", size, maxContext)
	}
	return nil
}

// checkPath makes sure that there is a hop before us: the place of the path is
// the sender's, its segment there is the connection's.
func checkPath(path *networkservice.Path, id string) error {
	segments := path.GetPathSegments()
	switch {
	case len(segments) == 0:
		return faulty("connection.path", "missing")
	case len(segments) > maxSegments:
		return faulty("connection.path.path_segments", "%d, more than %d", len(segments), maxSegments)
	case int64(path.GetIndex()) >= int64(len(segments)):
		return faulty("connection.path.index", "%d of %d segments", path.GetIndex(), len(segments))
	}
	for i, segment := range segments {
		if err := checkSegment(segment); err != nil {
			return within(fmt.Sprintf("connection.path.path_segments[%d]", i), err)
		}
	}
	if segments[path.GetIndex()].GetId() != id {
		return faulty("connection.id", "not the id of the path segment at index %d", path.GetIndex())
	}
	return nil
}

func checkSegment(segment *networkservice.PathSegment) error {
	if segment == nil {
		return faulty("", "missing")
	}
	return first(
		name("id", segment.GetId()),
		name("name", segment.GetName()),
		jwt("token", segment.GetToken()),
		expiry("expires", segment.GetExpires()),
		labels("metrics", segment.GetMetrics()),
	)
}

func checkMechanism(m *networkservice.Mechanism) error {
	if m == nil {
		return faulty("", "missing")
	}
	return first(
		text("cls", m.GetCls(), maxName),
		text("type", m.GetType(), maxName),
		labels("parameters", m.GetParameters()),
	)
}

// checkSelector lets names, ids and tokens be empty: each is a wildcard then.
func checkSelector(selector *networkservice.MonitorScopeSelector) error {
	if len(selector.GetPathSegments()) > maxSegments {
		return faulty("path_segments", "%d, more than %d", len(selector.GetPathSegments()), maxSegments)
	}
	for i, segment := range selector.GetPathSegments() {
		field := fmt.Sprintf("path_segments[%d]", i)
		if segment == nil {
			return faulty(field, "missing")
		}
		if err := first(
			text(field+".id", segment.GetId(), maxName),
			text(field+".name", segment.GetName(), maxName),
			text(field+".token", segment.GetToken(), maxToken),
			expiry(field+".expires", segment.GetExpires()),
			labels(field+".metrics", segment.GetMetrics()),
		); err != nil {
			return err
		}
	}
	if err := count("network_services", len(selector.GetNetworkServices())); err != nil {
		return err
	}
	for i, service := range selector.GetNetworkServices() {
		if err := text(fmt.Sprintf("network_services[%d]", i), service, maxName); err != nil {
			return err
		}
	}
	if size := proto.Size(selector); size > maxSelector {
		return faulty("selector", "%d bytes, more than %d", size, maxSelector)
	}
	return nil
}

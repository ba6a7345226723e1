package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// call is one call of one service and a message that is good for it.
type call struct {
	method string
	good   proto.Message
	// root is what answers call the message itself, if anything.
	root string
}

const (
	networkService   = "/networkservice.NetworkService/"
	monitorService   = "/connection.MonitorConnection/"
	endpointRegistry = "/registry.NetworkServiceEndpointRegistry/"
	serviceRegistry  = "/registry.NetworkServiceRegistry/"
	healthService    = "/grpc.health.v1.Health/"
)

// calls are all that the process serves.
func calls() []call {
	request := goodRequest("bad")
	conn := request.GetConnection().Clone()
	endpoint := &registry.NetworkServiceEndpoint{
		Name: "new@cluster2", Url: "tcp://127.0.0.1:1", NetworkServiceNames: []string{serviceName},
		NetworkServiceLabels: map[string]*registry.NetworkServiceLabels{serviceName: {Labels: map[string]string{"a": "b"}}},
		ExpirationTime:       timestamppb.New(time.Now().Add(tokenTTL)),
	}
	service := &registry.NetworkService{Name: serviceName, Payload: "IP", Matches: []*registry.Match{{
		SourceSelector: map[string]string{"a": "b"},
		Routes:         []*registry.Destination{{DestinationSelector: map[string]string{"c": "d"}}},
	}}}
	return []call{
		{method: networkService + "Request", good: request},
		{method: networkService + "Close", good: conn, root: "connection"},
		{method: monitorService + "MonitorConnections", good: &networkservice.MonitorScopeSelector{
			PathSegments: []*networkservice.PathSegment{{Name: "forwarder", Id: "forwarder-bad"}}, NetworkServices: []string{serviceName},
		}},
		{method: endpointRegistry + "Register", good: endpoint},
		{method: endpointRegistry + "Find", good: &registry.NetworkServiceEndpointQuery{NetworkServiceEndpoint: endpoint}},
		{method: endpointRegistry + "Unregister", good: endpoint},
		{method: serviceRegistry + "Register", good: service},
		{method: serviceRegistry + "Find", good: &registry.NetworkServiceQuery{NetworkService: service}},
		{method: serviceRegistry + "Unregister", good: service},
		{method: healthService + "Check", good: new(grpc_health_v1.HealthCheckRequest)},
		{method: healthService + "Watch", good: new(grpc_health_v1.HealthCheckRequest)},
		{method: healthService + "List", good: new(grpc_health_v1.HealthListRequest)},
	}
}

// input is one bad message for one call.
type input struct {
	method string
	fault  string
	// field is what is bad, as the answer has to name it. It is empty where the
	// fault is not in a field.
	field  string
	wire   []byte
	header metadata.MD
}

func (i *input) String() string { return fmt.Sprintf("%s: %s: %s", i.method, i.fault, i.field) }

// kind is the fault; of a path in a header there are too many to tell apart.
func (i *input) kind() string {
	if strings.HasPrefix(i.fault, pathHeader) {
		return "path header that is no path"
	}
	return i.fault
}

// random tells what may mean something else tomorrow: the same bits of another time.
func (i *input) random() bool {
	return i.fault == "bits changed" || i.fault == "cut short" || i.fault == "noise"
}

// answer is what came of an input.
type answer struct {
	code codes.Code
	text string
	took time.Duration
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// send sends an input and takes the first answer to it. For a stream that goes on
// that is its first message.
func send(ctx context.Context, conn *grpc.ClientConn, in *input, patience time.Duration) answer {
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(ctx, in.header), patience)
	defer cancel()
	began := time.Now()
	err := exchange(ctx, conn, in)
	return answer{code: status.Code(err), text: status.Convert(err).Message(), took: time.Since(began)}
}

func exchange(ctx context.Context, conn *grpc.ClientConn, in *input) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, in.method,
		grpc.ForceCodec(rawCodec{}), grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&in.wire); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	var response []byte
	if err := stream.RecvMsg(&response); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func wireOf(t *testing.T, m proto.Message) []byte {
	wire, err := proto.Marshal(m)
	require.NoError(t, err)
	return wire
}

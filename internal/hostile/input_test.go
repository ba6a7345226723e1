package hostile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/race"
)

const (
	// fewest is how many inputs there have to be at least: a generator that finds
	// no fields would make a test that passes.
	fewest = 1_000
	// stockSample is how many of them the SDK's chain gets. It does not survive
	// some, and each start takes time.
	stockSample = 40
	// stockPatience bounds a call to it. It may take longer for a good one.
	stockPatience = 500 * time.Millisecond
	// dying is how long a process whose answer was the end of the connection may
	// take to be gone.
	dying = time.Second
)

func allInputs(t *testing.T) []*input {
	var inputs []*input
	for i, c := range calls() {
		inputs = append(inputs, spoilFields(t, c)...)
		inputs = append(inputs, spoilBytes(t, c, uint64(i))...)
		inputs = append(inputs, spoilHeaders(t, c)...)
	}
	inputs = append(inputs,
		&input{method: networkService + "Nothing", fault: "unknown method"},
		&input{method: "/no.Service/Nothing", fault: "unknown service"},
		&input{method: networkService + "Request", fault: "message of 2 MiB", wire: make([]byte, 2<<20)},
		&input{method: monitorService + "MonitorConnections", fault: "message of 2 MiB", wire: make([]byte, 2<<20)},
		&input{method: healthService + "Check", fault: "message of 2 MiB", wire: make([]byte, 2<<20)},
	)
	return inputs
}

// client sends inputs; those with headers of their own without the token that a
// neighbour adds.
type client struct{ withToken, bare *grpc.ClientConn }

func newClient(t *testing.T, p *process) client {
	return client{withToken: p.dial(t, p.addr, p.tokens()), bare: p.dial(t, p.addr)}
}

func (c client) send(t *testing.T, in *input, patience time.Duration) answer {
	if strings.HasPrefix(in.fault, tokenHeader) {
		return send(t.Context(), c.bare, in, patience)
	}
	return send(t.Context(), c.withToken, in, patience)
}

func TestBadInputIsAnswered(t *testing.T) {
	t.Parallel()
	p := start(t, newNeighbours(t), build(t, race.Enabled))
	c := newClient(t, p)
	answered := newTable("fault", "answered with")
	var wrong []string
	for _, in := range allInputs(t) {
		a := c.send(t, in, answerTime)
		require.NotEqual(t, codes.DeadlineExceeded, a.code, "%s is not answered", in)
		require.False(t, a.code == codes.Unavailable && p.endsWithin(dying), "%s ended the process:\n%s", in, p.Tail(40))
		verdict, ok := judge(in, a)
		if !ok && open(in) {
			verdict, ok = verdict+" (in the context, which is for client and endpoint to judge)", true
		}
		if in.random() {
			verdict = "Internal (no such message), InvalidArgument or OK"
		}
		answered.add(in.kind(), verdict)
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s", in, a.code, a.text))
		}
	}
	t.Logf("%d inputs:\n%s", answered.count, answered)
	require.Greater(t, answered.count, fewest)
	require.Empty(t, wrong, "%d wrong answers", len(wrong))
	p.requireWell(t)
	answered.requirePublished(t)
}

// judge says what an answer amounts to, and whether it may be given.
func judge(in *input, a answer) (verdict string, ok bool) {
	switch {
	case a.code == codes.InvalidArgument:
		return "InvalidArgument", named(in.field, a.text)
	case a.code == codes.Internal && strings.Contains(a.text, "unmarshal"):
		return "Internal, of gRPC (no such message)", !mustBeNamed(in)
	case a.code == codes.Unimplemented, a.code == codes.ResourceExhausted:
		return a.code.String() + ", of gRPC", in.field == ""
	case a.code == codes.NotFound && strings.HasPrefix(in.method, healthService):
		return "NotFound, of gRPC's health", true
	case a.code == codes.FailedPrecondition && strings.HasPrefix(in.method, networkService):
		return "FailedPrecondition (no such endpoint)", !mustBeNamed(in)
	case a.code == codes.OK:
		return "OK", !mustBeNamed(in)
	default:
		return a.code.String(), false
	}
}

// named tells whether an answer names the field, or says that what holds the
// field is missing.
func named(field, text string) bool {
	above := field[:max(0, strings.LastIndexByte(field, '.'))]
	return field == "" || strings.HasPrefix(text, field) || above != "" && strings.HasPrefix(text, above+": ")
}

// mustBeNamed tells the faults that are nobody's use of a field from those that
// may be: what is optional may be missing or empty, labels and parameters are
// free text, and numbers of which this proxy makes nothing are handed on.
func mustBeNamed(in *input) bool {
	if in.field == "" || strings.HasPrefix(in.method, healthService) {
		return false
	}
	switch in.fault {
	case "text of 64 KiB", "text of 64 KiB as a key", "text of 64 KiB as a value", "thousands", "control characters",
		"no URL", "half an address":
		return true
	case "no JWT", "half a JWT":
		return in.method != monitorService+"MonitorConnections" // nobody's token is like that, so it asks for nothing
	case "several @", "nothing around @":
		return in.field == endpointNameOf[in.method]
	case "missing", "empty message", "empty text":
		// A search may be for nothing in particular.
		return slices.Contains(required[in.method], in.field) && (in.fault == "missing" || !strings.HasSuffix(in.method, "Find"))
	case "absurd number", "negative number", "past the end":
		return strings.HasSuffix(in.field, "path.index") || strings.Contains(in.field, "expir") && in.fault == "absurd number"
	}
	return false
}

// required are the fields that a call cannot be without.
var required = map[string][]string{
	networkService + "Request": {
		"connection", "connection.id", "connection.path", "connection.path.path_segments", "connection.path.path_segments[0]",
		"connection.path.path_segments[0].id", "connection.path.path_segments[0].name", "connection.network_service_endpoint_name",
	},
	networkService + "Close": {
		"connection.id", "connection.path", "connection.path.path_segments", "connection.path.path_segments[0]",
		"connection.path.path_segments[0].id", "connection.path.path_segments[0].name",
	},
	endpointRegistry + "Register":   {"name"},
	endpointRegistry + "Unregister": {"name"},
	endpointRegistry + "Find":       {"network_service_endpoint"},
	serviceRegistry + "Register":    {"name"},
	serviceRegistry + "Unregister":  {"name"},
	serviceRegistry + "Find":        {"network_service"},
}

// endpointNameOf is the field that may carry one domain.
var endpointNameOf = map[string]string{
	networkService + "Request":      "connection.network_service_endpoint_name",
	endpointRegistry + "Register":   "name",
	endpointRegistry + "Unregister": "name",
	serviceRegistry + "Register":    "name",
	serviceRegistry + "Unregister":  "name",
}

// TestStockProxyDies sends a sample of the same to the SDK's chain. It fails when
// nothing kills that: then there is nothing to compare with any more.
func TestStockProxyDies(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	p := startStock(t, n)
	c := newClient(t, p)
	died, answered := newTable("fault", "killed by"), newTable("fault", "answered with")
	for _, in := range sample(t) {
		a := c.send(t, in, stockPatience)
		answered.add(in.fault, a.code.String())
		if a.code != codes.Unavailable || !p.endsWithin(dying) {
			continue
		}
		require.Contains(t, p.Tail(200), "panic")
		died.add(in.fault, in.method)
		p = startStock(t, n)
		c = newClient(t, p)
	}
	t.Logf("the SDK's chain died %d times of %d inputs:\n%s\n%s", died.count, answered.count, died, answered)
	require.Equal(t, stockSample, answered.count)
	require.GreaterOrEqual(t, died.count, 3)
	require.Less(t, died.count, stockSample)
}

// sample takes the inputs that are known to kill and spreads the rest over all.
func sample(t *testing.T) []*input {
	empty := wireOf(t, new(emptypb.Empty))
	picked := []*input{
		{method: networkService + "Request", fault: "nothing at all", wire: empty},
		{method: networkService + "Request", fault: "empty message", field: "connection", wire: []byte{0x0a, 0}},
		{method: endpointRegistry + "Find", fault: "nothing at all", wire: empty},
		{
			method: endpointRegistry + "Register", fault: "path header: a segment is null",
			wire: wireOf(t, &registry.NetworkServiceEndpoint{Name: "new@cluster2"}), header: metadata.Pairs("path", `{"PathSegments":[{},null]}`),
		},
	}
	all := allInputs(t)
	for i, rest := 0, stockSample-len(picked); i < rest; i++ {
		picked = append(picked, all[i*len(all)/rest])
	}
	return picked
}

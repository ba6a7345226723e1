package nsmgrproxy_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/logtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/telemetry"
)

// secret is in every token here: of the form of a JWT, and none that anybody
// would know for one by its beginning.
const (
	secret      = "c2VjcmV0"
	secretToken = secret + "LWhlYWQ." + secret + "LWJvZHk." + secret + "LXNpZw"
)

// buffer is written to by many.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(strings.TrimSuffix(b.buf.String(), "\n"), "\n")
}

// logged returns a context whose logger writes at DEBUG to lines. What
// is logged without one in the context goes to past.
func logged(t *testing.T) (ctx context.Context, lines *buffer, past *logtest.Lines) {
	lines, past = new(buffer), logtest.New()
	ctx, stop := telemetry.Logs(context.Background(), "test", logrus.DebugLevel, lines)
	log.SetGlobalLogger(past)
	t.Cleanup(func() {
		log.SetGlobalLogger(log.Default())
		stop()
		logrus.SetOutput(os.Stderr)
		logrus.SetLevel(logrus.InfoLevel)
	})
	return ctx, lines, past
}

// withSecret is the context of a call with that token, and some headers more.
func withSecret(more ...string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	return metadata.AppendToOutgoingContext(ctx, append([]string{
		"nsm-client-token", secretToken, "nsm-client-token-expires", time.Now().Add(tokenTime).Format(time.RFC3339Nano),
		"path", `{"Index":0,"PathSegments":[{"token":"` + secretToken + `"}]}`,
	}, more...)...), cancel
}

// secretRequest carries the token in each segment of its path.
func secretRequest(n int) *networkservice.NetworkServiceRequest {
	r := newRequest(n)
	for _, segment := range r.GetConnection().GetPath().GetPathSegments() {
		segment.Token = secretToken
	}
	return r
}

// everyCall makes each call of each service, good and bad, with more headers.
func (w *world) everyCall(n int, more ...string) {
	do := func(call func(ctx context.Context)) {
		ctx, cancel := withSecret(more...)
		defer cancel()
		call(ctx)
	}
	client := networkservice.NewNetworkServiceClient(w.cc)
	requests := []*networkservice.NetworkServiceRequest{secretRequest(n), secretRequest(n), secretRequest(n)}
	requests[1].Connection.State = networkservice.State_RESELECT_REQUESTED
	requests[2].Connection.Path.PathSegments[0].Token += "." + secretToken
	for _, r := range requests {
		do(func(ctx context.Context) { _, _ = client.Request(ctx, r.Clone()) })
	}
	for _, r := range requests {
		do(func(ctx context.Context) { _, _ = client.Close(ctx, r.GetConnection().Clone()) })
	}
	for _, name := range []string{"forwarder", "\x00" + secretToken} {
		do(func(ctx context.Context) {
			s, err := networkservice.NewMonitorConnectionClient(w.cc).MonitorConnections(ctx, &networkservice.MonitorScopeSelector{
				PathSegments: []*networkservice.PathSegment{{Name: name, Token: secretToken}},
			})
			for err == nil {
				_, err = s.Recv()
			}
		})
	}
	nses, services := registry.NewNetworkServiceEndpointRegistryClient(w.cc), registry.NewNetworkServiceRegistryClient(w.cc)
	for _, name := range []string{"endpoint@floating", "a@b@c"} {
		nse := &registry.NetworkServiceEndpoint{Name: name, Url: "tcp://10.0.1.9:5001"}
		do(func(ctx context.Context) { _, _ = nses.Register(ctx, nse) })
		do(func(ctx context.Context) {
			found, err := nses.Find(ctx, &registry.NetworkServiceEndpointQuery{NetworkServiceEndpoint: nse})
			require.NoError(w, err)
			registry.ReadNetworkServiceEndpointList(found)
		})
		do(func(ctx context.Context) { _, _ = nses.Unregister(ctx, nse) })
		ns := &registry.NetworkService{Name: name}
		do(func(ctx context.Context) { _, _ = services.Register(ctx, ns) })
		do(func(ctx context.Context) {
			found, err := services.Find(ctx, &registry.NetworkServiceQuery{NetworkService: ns})
			require.NoError(w, err)
			registry.ReadNetworkServiceList(found)
		})
		do(func(ctx context.Context) { _, _ = services.Unregister(ctx, ns) })
	}
	synctest.Wait()
}

func TestLog_HasNoTokenAndNothingGoesPastIt(t *testing.T) {
	ctx, lines, past := logged(t)
	inBubbleOf(ctx, t, func(w *world) {
		w.everyCall(1)
		w.everyCall(2, "nsm-client-token", secretToken)
		w.everyCall(3, "nsm-client-token-expires", secretToken)
		w.everyCall(4, "path", `{"PathSegments":[{"token":"`+secretToken+`"},null]}`)
		w.everyCall(5, "path", secretToken)
		w.far.Set(lbtest.Faults{RequestError: status.Error(codes.PermissionDenied, "no")})
		w.remote.answerPath(`{"PathSegments":[{"token":"` + secretToken + `"},null]}`)
		w.everyCall(6)
	})
	require.Greater(t, len(lines.lines()), 20, "it was listened to")
	for _, line := range lines.lines() {
		require.NotContains(t, line, secret)
		require.NotContains(t, line, "eyJ", "nor one of our own")
		require.Less(t, len(line), 2<<10)
	}
	require.Empty(t, past.All(""))
}

func TestLog_OfAFlood(t *testing.T) {
	ctx, lines, _ := logged(t)
	inBubbleOf(ctx, t, func(w *world) {
		for i := range 100 {
			_, err := networkservice.NewNetworkServiceClient(w.cc).Request(context.Background(), newRequest(i)) // no token
			require.NoError(w, err)
			_, err = registry.NewNetworkServiceEndpointRegistryClient(w.cc).Register(context.Background(),
				&registry.NetworkServiceEndpoint{Name: "endpoint@floating", Url: "tcp://10.0.1.9:5001"}) // nor path
			require.NoError(w, err)
			_, err = registry.NewNetworkServiceEndpointRegistryClient(w.cc).Register(context.Background(), new(registry.NetworkServiceEndpoint))
			require.Error(w, err)
		}
	})
	count := make(map[string]int)
	size := 0
	for _, line := range lines.lines() {
		for _, level := range []string{"[INFO]", "[WARN]", "[ERRO]", "[DEBU]"} {
			if strings.Contains(line, level) {
				count[level]++
			}
		}
		size += len(line)
	}
	t.Logf("%v lines of 300 calls, %d bytes", count, size)
	require.Zero(t, count["[ERRO]"])
	require.LessOrEqual(t, count["[WARN]"], 4)
	require.LessOrEqual(t, count["[INFO]"], 20)
	require.LessOrEqual(t, count["[DEBU]"], 600)
}

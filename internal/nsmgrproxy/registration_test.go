package nsmgrproxy_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

// ballast is what a call brings in its context, as a connection is in a real one.
type ballast [1 << 10]byte

type ballastKey struct{}

func TestRegister_KeepsNothingOfTheCall(t *testing.T) {
	server := inMemory(t).NetworkServiceEndpointRegistryServer()
	var kept []weak.Pointer[ballast]
	for i := range 10 {
		b := new(ballast)
		kept = append(kept, weak.Make(b))
		md, _ := metadata.FromOutgoingContext(withToken(t.Context(), tokenTime))
		ctx := context.WithValue(metadata.NewIncomingContext(t.Context(), md), ballastKey{}, b)
		_, err := server.Register(ctx, &registry.NetworkServiceEndpoint{Name: fmt.Sprintf("nse-%d@floating", i), Url: "tcp://" + farAddr})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		for _, p := range kept {
			if p.Value() != nil {
				return false
			}
		}
		return true
	}, 5*time.Second, 10*time.Millisecond, "the context of a call that has returned is still held")
	runtime.KeepAlive(server)
}

func TestRegister_AnsweredWithAPathThatIsNone(t *testing.T) {
	for path, field := range map[string]string{
		`{"PathSegments":[{"token":"a"},null]}`:         "header path: segment 1",
		`{"Index":7,"PathSegments":[{"token":"a"}]}`:    "header path: index",
		`{"PathSegments":[{"token":"a"}`:                "header path: not a path",
		`null`:                                          "header path: missing",
		`{"PathSegments":[{"token":"a"},{"token":""}]}`: "",
	} {
		t.Run(path, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.remote.answerPath(path)
				panics := guard.Panics()
				ctx, cancel := call()
				defer cancel()
				ctx = metadata.AppendToOutgoingContext(ctx, "path", `{"Index":0,"PathSegments":[{"token":"a"}]}`)
				nse := &registry.NetworkServiceEndpoint{Name: "nse@floating", Url: "tcp://10.0.1.9:5001"}
				_, register := registry.NewNetworkServiceEndpointRegistryClient(w.cc).Register(ctx, nse)
				_, unregister := registry.NewNetworkServiceEndpointRegistryClient(w.cc).Unregister(ctx, nse)
				for _, err := range []error{register, unregister} {
					if field == "" {
						require.NoError(t, err)
						continue
					}
					require.Equal(t, codes.Internal, status.Code(err), "%v", err)
					require.ErrorContains(t, err, field)
				}
				require.Equal(t, panics, guard.Panics())
			})
		})
	}
}

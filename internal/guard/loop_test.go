package guard_test

import (
	"strings"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/chain"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

func TestLoop(t *testing.T) {
	for name, c := range map[string]struct {
		before, after []string // the sender's is the last of those before
		passes        bool
	}{
		"first time":                        {[]string{"forwarder"}, nil, true},
		"eighth time":                       {strings.Fields(strings.Repeat("proxy other ", 7)), nil, true},
		"ninth time":                        {strings.Fields(strings.Repeat("proxy other ", 8)), nil, false},
		"refresh on its first visit":        {[]string{"forwarder"}, strings.Fields(strings.Repeat("proxy other ", 60)), true},
		"eighth, from a sender of our name": {strings.Fields(strings.Repeat("proxy other ", 7) + "proxy"), nil, true},
		"ninth, from a sender of our name":  {strings.Fields(strings.Repeat("proxy other ", 8) + "proxy"), nil, false},
		"63rd time":                         {strings.Fields(strings.Repeat("proxy other ", 63)), nil, false},
		"others come round":                 {strings.Fields(strings.Repeat("other one ", 60)), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			end := new(behind)
			server := chain.NewNetworkServiceServer(guard.NewLoopServer("proxy"), end)
			path := &networkservice.Path{Index: uint32(len(c.before) - 1)}
			for _, name := range append(c.before, c.after...) {
				path.PathSegments = append(path.PathSegments, &networkservice.PathSegment{Name: name, Id: "id"})
			}
			conn := &networkservice.Connection{Id: "id", Path: path}
			_, err := server.Request(t.Context(), &networkservice.NetworkServiceRequest{Connection: conn})
			require.Equal(t, c.passes, end.passed == 1)
			if !c.passes {
				require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
				require.ErrorContains(t, err, "through proxy ")
			}
			end.passed = 0
			_, err = server.Close(t.Context(), conn)
			require.NoError(t, err)
			require.Equal(t, 1, end.passed, "what is there can be closed")
		})
	}
}

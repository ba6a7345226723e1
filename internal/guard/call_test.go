package guard_test

import (
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/chain"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// FuzzTokenHeaders looks for headers that pass and that the elements behind, which read
// them by the SDK's function, cannot take.
func FuzzTokenHeaders(f *testing.F) {
	for _, expires := range []string{"2026-01-02T15:04:05.999999999Z", "", "never", "9999-12-31T23:59:59Z", "2026-01-02T15:04:05+25:00"} {
		f.Add("a.b.c", expires, true)
		f.Add("a.b", expires, false)
		f.Add("", expires, true)
	}
	request := &networkservice.NetworkServiceRequest{Connection: lbtest.Established(1)}
	f.Fuzz(func(t *testing.T, tok, expires string, both bool) {
		header := metadata.Pairs(guard.TokenHeader, tok)
		if both {
			header.Append(guard.ExpiresHeader, expires)
		}
		ctx := metadata.NewIncomingContext(t.Context(), header)
		server := chain.NewNetworkServiceServer(guard.NewServer(quietly()), new(behind))
		_, err := server.Request(ctx, request.Clone())
		if err != nil {
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			require.Contains(t, err.Error(), "header nsm-client-token")
			return
		}
		if !both || tok == "" {
			return
		}
		read, until, err := token.FromContext(ctx)
		require.NoError(t, err)
		require.Equal(t, tok, read)
		require.Less(t, time.Until(until), 11*365*24*time.Hour)
	})
}

func TestTokenForm(t *testing.T) {
	for tok, good := range map[string]bool{
		"a.b.c": true, "eyJ_-.Z9.=": true, "": true,
		"a": false, "a.b": false, "a.b.c.d": false, ".b.c": false, "a..c": false, "a.b.": false, "...": false, "..": false,
		"a.b c.d": false, "a.b.c\n": false, "a.b.+": false, "ä.b.c": false,
	} {
		request := &networkservice.NetworkServiceRequest{Connection: lbtest.Established(1)}
		request.Connection.Path.PathSegments[0].Token = tok
		server := chain.NewNetworkServiceServer(guard.NewServer(quietly()), new(behind))
		_, err := server.Request(t.Context(), request)
		if good {
			require.NoError(t, err, "%q", tok)
			continue
		}
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%q", tok)
		require.ErrorContains(t, err, "path_segments[0].token: not a JWT")
	}
}

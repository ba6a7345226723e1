package guard_test

import (
	"fmt"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// BenchmarkRequest is the check of a Request: of a first one, with the three segments
// before us, and of a refresh with all eight.
func BenchmarkRequest(b *testing.B) {
	refresh := &networkservice.NetworkServiceRequest{Connection: lbtest.Established(1)}
	first := refresh.Clone()
	first.Connection.Path.Index = 2
	first.Connection.Path.PathSegments = first.Connection.Path.PathSegments[:3]
	first.Connection.Id = first.GetConnection().GetCurrentPathSegment().GetId()
	for _, request := range []*networkservice.NetworkServiceRequest{first, refresh} {
		b.Run(fmt.Sprintf("segments=%d", len(request.GetConnection().GetPath().GetPathSegments())), func(b *testing.B) {
			server := next.NewNetworkServiceServer(guard.NewServer(quietly()), new(behind))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.Request(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package load

import (
	"fmt"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/vxlan"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// fillerLifetime is longer than a run.
const fillerLifetime = 10 * time.Minute

// newRequest is the first Request of the leg of that number, as it reaches a
// proxy in that role.
func newRequest(n int, role neighbours.Role) *networkservice.NetworkServiceRequest {
	names := []string{"client", "nsmgr-one", "forwarder-one"}
	if role == neighbours.Inbound {
		names = append(names, "nsmgr-proxy-one")
	}
	path := &networkservice.Path{Index: uint32(len(names) - 1)}
	for i, name := range names {
		path.PathSegments = append(path.PathSegments, &networkservice.PathSegment{
			Name:    name,
			Id:      fmt.Sprintf("00000000-0000-0000-%04d-%012d", i, n),
			Token:   lbtest.Token,
			Expires: timestamppb.New(time.Now().Add(fillerLifetime)),
		})
	}
	return &networkservice.NetworkServiceRequest{
		Connection: &networkservice.Connection{
			Id:                         path.PathSegments[path.Index].Id,
			NetworkService:             neighbours.Service,
			NetworkServiceEndpointName: neighbours.Endpoint,
			Context:                    &networkservice.ConnectionContext{},
			Path:                       path,
			Labels:                     map[string]string{"podName": fmt.Sprintf("client-%d", n), "nodeName": "node-1"},
		},
		MechanismPreferences: []*networkservice.Mechanism{{
			Cls: "REMOTE", Type: vxlan.MECHANISM, Parameters: map[string]string{vxlan.SrcIP: "10.0.1.9"},
		}},
	}
}

package lbtest

import (
	"fmt"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/common"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/vxlan"
)

// NewPath is the path of a connection as a forwarder sends it for the first time:
// client, nsmgr and forwarder, each with an id that ends in the number.
func NewPath(number any) *networkservice.Path {
	path := &networkservice.Path{Index: 2}
	for _, name := range []string{"client", "nsmgr", "forwarder"} {
		path.PathSegments = append(path.PathSegments, &networkservice.PathSegment{Name: name, Id: fmt.Sprintf("%s-%v", name, number)})
	}
	return path
}

// NewRequest is what a forwarder sends first for the connection of that number.
func NewRequest(number any, service, endpoint string) *networkservice.NetworkServiceRequest {
	path := NewPath(number)
	return &networkservice.NetworkServiceRequest{
		Connection: &networkservice.Connection{
			Id:                         path.GetPathSegments()[path.GetIndex()].GetId(),
			NetworkService:             service,
			NetworkServiceEndpointName: endpoint,
			Context:                    &networkservice.ConnectionContext{},
			Path:                       path,
		},
		MechanismPreferences: []*networkservice.Mechanism{{
			Cls: "REMOTE", Type: vxlan.MECHANISM, Parameters: map[string]string{common.SrcIP: "10.0.1.9"},
		}},
	}
}

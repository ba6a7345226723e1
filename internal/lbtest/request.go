package lbtest

import (
	"fmt"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/common"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/vxlan"
	"google.golang.org/protobuf/types/known/timestamppb"
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

// Token has the length of a real one: the size of messages is part of their cost. It
// is signed by nobody, for nobody on these wires looks into the tokens of a path.
const Token = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9." +
	"eyJzdWIiOiJzcGlmZmU6Ly9uc20ub25lL2ZvcndhcmRlciIsImF1ZCI6WyJzcGlmZmU6Ly9uc20ub25lL25zbWdyLXByb3h5Il0sImV4cCI6MTcwMDAwMDAwMH0." +
	"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// Established is the connection of that number as the outbound proxy, at place 3 of
// its eight, knows it once it is UP.
func Established(number any) *networkservice.Connection {
	request := NewRequest(number, "service@cluster2", "endpoint@cluster2")
	conn := request.GetConnection()
	conn.Path.Index = 3
	for i := range farSegments {
		if i == len(conn.Path.PathSegments) {
			conn.Path.PathSegments = append(conn.Path.PathSegments, &networkservice.PathSegment{
				Name: fmt.Sprintf("far-%d", i), Id: fmt.Sprintf("far-%d-%v", i, number),
			})
		}
		conn.Path.PathSegments[i].Token = Token
		conn.Path.PathSegments[i].Expires = timestamppb.New(time.Now().Add(farLifetime))
	}
	conn.Id = conn.GetCurrentPathSegment().GetId()
	conn.Mechanism = request.GetMechanismPreferences()[0]
	conn.Labels = map[string]string{"podName": fmt.Sprintf("client-%v", number), "nodeName": "node-1"}
	conn.Context = farContext()
	conn.State = networkservice.State_UP
	return conn
}

package domain

import (
	"context"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/cls"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/kernel"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/vxlan"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/next"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Tunnel is what a forwarder knows of the other end of its tunnel.
type Tunnel struct {
	// PeerSource is the source address that arrived from the other domain.
	PeerSource string
	// PeerDestination is the destination address that the other domain answered.
	PeerDestination string
}

// Tunnel returns the addresses of the latest VXLAN connection of the domain's
// forwarder: what the proxies made of them.
func (d *Domain) Tunnel() Tunnel {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tunnel
}

// offer is a client element that prefers one mechanism.
type offer struct{ mechanism *networkservice.Mechanism }

func newOffer(mechanismType string) networkservice.NetworkServiceClient {
	class := cls.LOCAL
	if mechanismType == vxlan.MECHANISM {
		class = cls.REMOTE
	}
	return &offer{mechanism: &networkservice.Mechanism{Cls: class, Type: mechanismType}}
}

func (o *offer) Request(ctx context.Context, request *networkservice.NetworkServiceRequest, opts ...grpc.CallOption) (*networkservice.Connection, error) {
	request.MechanismPreferences = append(request.MechanismPreferences, o.mechanism.Clone())
	return next.Client(ctx).Request(ctx, request, opts...)
}

func (o *offer) Close(ctx context.Context, conn *networkservice.Connection, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	return next.Client(ctx).Close(ctx, conn, opts...)
}

// tunnelServer notes the source address of a tunnel that comes in.
type tunnelServer struct{ domain *Domain }

func (t *tunnelServer) Request(ctx context.Context, request *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	if mechanism := request.GetConnection().GetMechanism(); mechanism.GetType() == vxlan.MECHANISM {
		t.domain.mu.Lock()
		t.domain.tunnel.PeerSource = mechanism.GetParameters()[vxlan.SrcIP]
		t.domain.mu.Unlock()
	}
	return next.Server(ctx).Request(ctx, request)
}

func (t *tunnelServer) Close(ctx context.Context, conn *networkservice.Connection) (*emptypb.Empty, error) {
	return next.Server(ctx).Close(ctx, conn)
}

// tunnelClient notes the destination address that the other domain answers.
type tunnelClient struct{ domain *Domain }

func (t *tunnelClient) Request(ctx context.Context, request *networkservice.NetworkServiceRequest, opts ...grpc.CallOption) (*networkservice.Connection, error) {
	conn, err := next.Client(ctx).Request(ctx, request, opts...)
	if mechanism := conn.GetMechanism(); err == nil && mechanism.GetType() == vxlan.MECHANISM {
		t.domain.mu.Lock()
		t.domain.tunnel.PeerDestination = mechanism.GetParameters()[vxlan.DstIP]
		t.domain.mu.Unlock()
	}
	return conn, err
}

func (t *tunnelClient) Close(ctx context.Context, conn *networkservice.Connection, opts ...grpc.CallOption) (*emptypb.Empty, error) {
	return next.Client(ctx).Close(ctx, conn, opts...)
}

// kernelPreference is what a workload asks for.
func kernelPreference() []*networkservice.Mechanism {
	return []*networkservice.Mechanism{{Cls: cls.LOCAL, Type: kernel.MECHANISM}}
}

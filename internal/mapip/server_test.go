package mapip_test

import (
	"context"
	"sync"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/ipsec"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/vxlan"
	"github.com/networkservicemesh/api/pkg/api/networkservice/mechanisms/wireguard"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/networkservice/core/chain"
	registrychain "github.com/networkservicemesh/sdk/pkg/registry/core/chain"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/mapip"
)

// far chooses the first mechanism and, on the endpoint's side, a destination.
type far struct {
	dst  string
	seen map[string]string
}

func (f *far) Request(_ context.Context, r *networkservice.NetworkServiceRequest) (*networkservice.Connection, error) {
	conn := r.GetConnection()
	if conn.Mechanism == nil {
		conn.Mechanism = r.GetMechanismPreferences()[0]
	}
	f.seen = make(map[string]string)
	for key, value := range conn.GetMechanism().GetParameters() {
		f.seen[key] = value
	}
	if f.dst != "" {
		conn.Mechanism.Parameters["dst_ip"] = f.dst
	}
	return conn, nil
}

func (f *far) Close(context.Context, *networkservice.Connection) (*emptypb.Empty, error) {
	return new(emptypb.Empty), nil
}

func chainOf(t *testing.T, m *mapip.Map, f *far) networkservice.NetworkServiceServer {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); wg.Wait() })
	return chain.NewNetworkServiceServer(leg.NewServer(leg.New(ctx, &wg)), mapip.NewServer(m), f)
}

func first(mechanism string, parameters map[string]string) *networkservice.NetworkServiceRequest {
	return &networkservice.NetworkServiceRequest{
		Connection: &networkservice.Connection{Id: "us", Path: &networkservice.Path{Index: 1, PathSegments: []*networkservice.PathSegment{
			{Name: "before", Id: "before"}, {Name: "us", Id: "us"},
		}}},
		MechanismPreferences: []*networkservice.Mechanism{{Type: mechanism, Parameters: parameters}},
	}
}

func TestServer_ClientsSide(t *testing.T) {
	for _, mechanism := range []string{vxlan.MECHANISM, wireguard.MECHANISM, ipsec.MECHANISM} {
		for name, c := range map[string]struct{ src, external string }{
			"mapped":           {"10.0.0.1", "1.1.1.1"},
			"no mapping":       {"10.0.0.9", "10.0.0.9"},
			"already external": {"1.1.1.1", "1.1.1.1"},
			"other family":     {"fd00::1", "fd00::1"},
		} {
			t.Run(mechanism+" "+name, func(t *testing.T) {
				f := new(far)
				path := t.TempDir() + "/config.yaml"
				write(t, path, "10.0.0.1: 1.1.1.1\n")
				m := watch(t, path)
				server := chainOf(t, m, f)
				conn, err := server.Request(t.Context(), first(mechanism, map[string]string{"src_ip": c.src, "dst_ip": "9.9.9.9"}))
				require.NoError(t, err)
				require.Equal(t, map[string]string{"src_ip": c.external, "orig_src_ip": c.src, "dst_ip": "9.9.9.9"}, f.seen)
				require.Equal(t, c.src, conn.GetMechanism().GetParameters()["src_ip"])
				require.Empty(t, conn.GetMechanism().GetParameters()["orig_src_ip"])

				// A changed map does not flip a live tunnel.
				write(t, path, "10.0.0.1: 2.2.2.2\n10.0.0.9: 2.2.2.9\n")
				eventually(t, m, "2.2.2.2")
				refreshed, err := server.Request(t.Context(), &networkservice.NetworkServiceRequest{Connection: conn.Clone()})
				require.NoError(t, err)
				require.Equal(t, c.external, f.seen["src_ip"])
				require.Equal(t, c.src, f.seen["orig_src_ip"])
				require.Equal(t, c.src, refreshed.GetMechanism().GetParameters()["src_ip"])
			})
		}
	}
}

func TestServer_ChangedMapAppliesAfterAReselect(t *testing.T) {
	f := new(far)
	path := t.TempDir() + "/config.yaml"
	write(t, path, "10.0.0.1: 1.1.1.1\n")
	m := watch(t, path)
	server := chainOf(t, m, f)
	_, err := server.Request(t.Context(), first(vxlan.MECHANISM, map[string]string{"src_ip": internalIP}))
	require.NoError(t, err)
	write(t, path, "10.0.0.1: 2.2.2.2\n")
	eventually(t, m, "2.2.2.2")
	reselect := first(vxlan.MECHANISM, map[string]string{"src_ip": internalIP})
	reselect.Connection.State = networkservice.State_RESELECT_REQUESTED
	_, err = server.Request(t.Context(), reselect)
	require.NoError(t, err)
	require.Equal(t, "2.2.2.2", f.seen["src_ip"])
}

func TestServer_EndpointsSide(t *testing.T) {
	for name, c := range map[string]struct{ dst, external string }{
		"mapped":     {"10.0.0.1", "1.1.1.1"},
		"no mapping": {"10.0.0.9", "10.0.0.9"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &far{dst: c.dst}
			server := chainOf(t, mapip.Static(map[string]string{"10.0.0.1": "1.1.1.1"}), f)
			r := first(vxlan.MECHANISM, map[string]string{"src_ip": "8.8.8.8", "orig_src_ip": "10.8.8.8"})
			for range 2 {
				conn, err := server.Request(t.Context(), r)
				require.NoError(t, err)
				require.Equal(t, map[string]string{"src_ip": "8.8.8.8", "orig_src_ip": "10.8.8.8", "dst_ip": "", "orig_dst_ip": ""}, f.seen)
				require.Equal(t, c.external, conn.GetMechanism().GetParameters()["dst_ip"])
				require.Equal(t, c.dst, conn.GetMechanism().GetParameters()["orig_dst_ip"])
				r = &networkservice.NetworkServiceRequest{Connection: conn.Clone()}
			}
		})
	}
}

// The first that a restarted proxy sees of a live tunnel is its refresh. Whatever the
// map says by then, or does not say yet, the tunnel keeps its address.
func TestServer_AdoptedTunnelIsNotFlipped(t *testing.T) {
	for name, addresses := range map[string]map[string]string{"map changed": {"10.0.0.1": "2.2.2.2"}, "map not there yet": nil} {
		t.Run(name, func(t *testing.T) {
			server := chainOf(t, mapip.Static(addresses), &far{dst: "10.0.0.1"})
			r := first(vxlan.MECHANISM, nil)
			r.Connection.Mechanism = &networkservice.Mechanism{Type: vxlan.MECHANISM, Parameters: map[string]string{
				"src_ip": "8.8.8.8", "orig_src_ip": "10.8.8.8", "dst_ip": "1.1.1.1", "orig_dst_ip": "10.0.0.1",
			}}
			r.Connection.Path.PathSegments = append(r.Connection.Path.PathSegments, &networkservice.PathSegment{Id: "next"})
			for range 2 {
				conn, err := server.Request(t.Context(), r.Clone())
				require.NoError(t, err)
				require.Equal(t, "1.1.1.1", conn.GetMechanism().GetParameters()["dst_ip"])
				require.Equal(t, "10.0.0.1", conn.GetMechanism().GetParameters()["orig_dst_ip"])
			}
		})
	}
}

func TestServer_MechanismWithoutAddressesIsLeftAlone(t *testing.T) {
	f := new(far)
	server := chainOf(t, mapip.Static(map[string]string{"": "1.1.1.1"}), f)
	for _, parameters := range []map[string]string{nil, {"inode": "4"}, {"src_ip": ""}} {
		conn, err := server.Request(t.Context(), first("KERNEL", parameters))
		require.NoError(t, err)
		require.Equal(t, parameters, conn.GetMechanism().GetParameters())
	}
}

// fakeRegistry keeps what was asked of it.
type fakeRegistry struct {
	registry.NetworkServiceEndpointRegistryServer
	urls []string
}

func (r *fakeRegistry) Register(_ context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	r.urls = append(r.urls, nse.GetUrl())
	return nse, nil
}

func (r *fakeRegistry) Unregister(_ context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	r.urls = append(r.urls, nse.GetUrl())
	return new(emptypb.Empty), nil
}

func TestRegistry_RegistrationRefreshAndUnregisterAreTranslatedAlike(t *testing.T) {
	r := new(fakeRegistry)
	server := registrychain.NewNetworkServiceEndpointRegistryServer(
		mapip.NewNetworkServiceEndpointRegistryServer(mapip.Static(map[string]string{"10.0.0.1": "1.1.1.1", "fd00::1": "2001:db8::1"})), r)
	for given, want := range map[string]string{
		"tcp://10.0.0.1:5004":  "tcp://1.1.1.1:5004",
		"tcp://1.1.1.1:5004":   "tcp://1.1.1.1:5004",
		"tcp://[fd00::1]:5004": "tcp://[2001:db8::1]:5004",
		"tcp://10.0.0.9:5004":  "tcp://10.0.0.9:5004",
		"unix:///var/a.sock":   "unix:///var/a.sock",
		"":                     "",
		"::":                   "::",
	} {
		r.urls = nil
		for range 2 {
			_, err := server.Register(t.Context(), &registry.NetworkServiceEndpoint{Name: "nse", Url: given})
			require.NoError(t, err)
		}
		_, err := server.Unregister(t.Context(), &registry.NetworkServiceEndpoint{Name: "nse", Url: given})
		require.NoError(t, err)
		require.Equal(t, []string{want, want, want}, r.urls)
	}
}

package hop_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

const (
	figureRounds = 10
	// refreshEvery is when the SDK's client refreshes tokens of ten minutes.
	refreshEvery = 2 * time.Minute
	// atOnce is how many callers the neighbour has.
	atOnce = 50

	figureProxy    = "10.0.1.4:5004"
	figureRegistry = "10.0.1.2:5002"
)

// everywhere is a registry where every endpoint is at the far side, but for those that
// have a target of their own in their name.
type everywhere struct {
	registry.UnimplementedNetworkServiceEndpointRegistryServer
}

func (*everywhere) Find(query *registry.NetworkServiceEndpointQuery, stream registry.NetworkServiceEndpointRegistry_FindServer) error {
	nse := query.GetNetworkServiceEndpoint()
	nse.Url = farURL.String()
	if n, err := fmt.Sscanf(nse.GetName(), "target-%d@cluster2", new(int)); n == 1 && err == nil {
		nse.Url = "tcp://" + targetAddr(nse.GetName())
	}
	return stream.Send(&registry.NetworkServiceEndpointResponse{NetworkServiceEndpoint: nse})
}

// figures is a whole proxy with mutual TLS on all sides, in a bubble.
type figures struct {
	*testing.T
	wire       *lbtest.Wire
	far        *lbtest.Peer
	handshakes atomic.Int64 // at the far side
	source     *identitytest.Source
	cc         *grpc.ClientConn
	conns      []*networkservice.Connection
}

func withFigures(t *testing.T, play func(f *figures)) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := identitytest.NewCA("nsm.cluster1")
		require.NoError(t, err)
		f := &figures{T: t, wire: lbtest.NewWire(), far: lbtest.NewPeer("far")}
		f.source, err = identitytest.NewSource(ca, "proxy", 23*time.Hour)
		require.NoError(t, err)
		defer f.serve(farAddr, &f.handshakes, f.far.Register)()
		defer f.serve(figureRegistry, new(atomic.Int64), func(s *grpc.Server) {
			registry.RegisterNetworkServiceEndpointRegistryServer(s, new(everywhere))
		})()

		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		tokens := spiffejwt.TokenGeneratorFunc(f.source, 10*time.Minute)
		dial := []grpc.DialOption{
			grpc.WithContextDialer(f.wire.Dial),
			grpc.WithTransportCredentials(credentials.NewTLS(tlsconfig.MTLSClientConfig(f.source, f.source, tlsconfig.AuthorizeAny()))),
			grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(token.NewPerRPCCredentials(tokens))),
		}
		at := &url.URL{Scheme: "tcp", Host: figureRegistry}
		chain := nsmgrproxy.NewServer(ctx, at, at, tokens,
			nsmgrproxy.WithName("proxy"), nsmgrproxy.WithListenOn(&url.URL{Scheme: "tcp", Host: figureProxy}),
			nsmgrproxy.WithMapIPFilePath(""), nsmgrproxy.WithWaitGroup(&wg),
			nsmgrproxy.WithIdentity(f.source, 10*time.Minute), nsmgrproxy.WithDialOptions(dial...))
		stop := f.serve(figureProxy, new(atomic.Int64), func(s *grpc.Server) {
			networkservice.RegisterNetworkServiceServer(s, chain)
		}, nsmgrproxy.ServerOptions()...)
		f.cc, err = grpc.NewClient("passthrough:///"+figureProxy, dial...)
		require.NoError(t, err)
		play(f)
		require.NoError(t, f.cc.Close())
		cancel()
		wg.Wait()
		stop()
	})
}

func (f *figures) serve(addr string, handshakes *atomic.Int64, register func(*grpc.Server), opts ...grpc.ServerOption) (stop func()) {
	tls := credentials.NewTLS(tlsconfig.MTLSServerConfig(f.source, f.source, tlsconfig.AuthorizeAny()))
	s := grpc.NewServer(append(opts, grpc.Creds(identitytest.CountHandshakes(tls, handshakes)))...)
	register(s)
	listener := f.wire.Listen(addr)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	return func() {
		s.Stop()
		require.NoError(f, <-done)
	}
}

// each requests every connection anew and keeps what is answered.
func (f *figures) each(request func(n int) *networkservice.Connection) {
	var wg sync.WaitGroup
	for caller := range atOnce {
		wg.Go(func() {
			for n := caller; n < figureLegs; n += atOnce {
				ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
				conn, err := networkservice.NewNetworkServiceClient(f.cc).Request(ctx, &networkservice.NetworkServiceRequest{Connection: request(n)})
				cancel()
				if err != nil {
					f.Errorf("connection %d: %v", n, err)
					return
				}
				f.conns[n] = conn
			}
		})
	}
	wg.Wait()
}

// What a stock proxy takes a connection and a handshake each for, 11,000 times.
func TestFigures_AThousandLegsTakeOneConnection(t *testing.T) {
	withFigures(t, func(f *figures) {
		f.conns = make([]*networkservice.Connection, figureLegs)
		f.each(func(n int) *networkservice.Connection {
			id := fmt.Sprintf("forwarder-%d", n)
			return &networkservice.Connection{
				Id: id, NetworkServiceEndpointName: "endpoint@cluster2", NetworkService: "service@cluster2",
				Path: &networkservice.Path{PathSegments: []*networkservice.PathSegment{{Name: "forwarder", Id: id}}},
			}
		})
		for range figureRounds {
			time.Sleep(refreshEvery)
			f.each(func(n int) *networkservice.Connection { return f.conns[n] })
		}
		require.Len(t, f.far.Requests(), figureLegs*(1+figureRounds))
		require.Len(t, f.far.Conns(), figureLegs)
		require.Equal(t, 1, f.wire.Dials(farAddr))
		require.EqualValues(t, 1, f.handshakes.Load())
		open, opened := f.far.Streams()
		require.Equal(t, figureLegs, open)
		require.Equal(t, figureLegs, opened, "and one stream each")

		// One cut: one more of each, and all legs are watched again.
		f.wire.Cut(farAddr)
		time.Sleep(5 * time.Second)
		open, _ = f.far.Streams()
		require.Equal(t, figureLegs, open)
		require.Equal(t, 2, f.wire.Dials(farAddr))
		require.EqualValues(t, 2, f.handshakes.Load())
		require.Len(t, f.far.Requests(), figureLegs*(1+figureRounds), "nothing is requested for it")
	})
}

const (
	targets = 100
	// answerTime is how long a living far side takes for a Request.
	answerTime = 50 * time.Millisecond
)

func targetAddr(endpoint string) string {
	name, _, _ := strings.Cut(endpoint, "@")
	return strings.Replace(name, "target-", "10.9.3.", 1) + ":5004"
}

// refreshes establishes a connection to each target, has every second one die if told
// to, and returns what refreshes to the others take while those to the dead fail.
func (f *figures) refreshes(deaths bool) (took []time.Duration) {
	f.far.Set(lbtest.Faults{RequestDelay: answerTime})
	request := func(conn *networkservice.Connection) (*networkservice.Connection, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		return networkservice.NewNetworkServiceClient(f.cc).Request(ctx, &networkservice.NetworkServiceRequest{Connection: conn})
	}
	var wg sync.WaitGroup
	conns := make([]*networkservice.Connection, targets)
	for n := range conns {
		endpoint := fmt.Sprintf("target-%d@cluster2", n)
		f.Cleanup(f.serve(targetAddr(endpoint), new(atomic.Int64), f.far.Register))
		wg.Go(func() {
			id := fmt.Sprintf("forwarder-%d", n)
			var err error
			conns[n], err = request(&networkservice.Connection{
				Id: id, NetworkServiceEndpointName: endpoint, NetworkService: "service@cluster2",
				Path: &networkservice.Path{PathSegments: []*networkservice.PathSegment{{Name: "forwarder", Id: id}}},
			})
			require.NoError(f, err)
		})
	}
	wg.Wait()
	for n := 1; deaths && n < targets; n += 2 {
		addr := targetAddr(conns[n].GetNetworkServiceEndpointName())
		if n%4 == 1 {
			f.wire.Refuse(addr, true)
			f.wire.Cut(addr)
		} else {
			f.wire.Blackhole(addr, true)
		}
	}
	var mu sync.Mutex
	for range figureRounds {
		time.Sleep(refreshEvery)
		for n, conn := range conns {
			wg.Go(func() {
				began := time.Now()
				_, err := request(conn.Clone())
				if n%2 == 1 {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(began))
				if err != nil {
					f.Errorf("living target %d: %v", n, err)
				}
			})
		}
		wg.Wait()
	}
	slices.Sort(took)
	return took
}

func TestFigures_DeadTargetsDelayNobody(t *testing.T) {
	var p99 [2]time.Duration
	for n, deaths := range []bool{false, true} {
		withFigures(t, func(f *figures) {
			took := f.refreshes(deaths)
			p99[n] = took[len(took)*99/100]
		})
	}
	t.Logf("p99 of refreshes to the living: %s, with %d dead beside them %s", p99[0], targets/2, p99[1])
	require.LessOrEqual(t, p99[1], p99[0]+p99[0]/10)
}

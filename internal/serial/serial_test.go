package serial_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/registry/core/next"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/serial"
)

// slow takes a second for each call and notes the URLs of those that it took.
type slow struct {
	registry.NetworkServiceEndpointRegistryServer
	mu     sync.Mutex
	taken  []string
	panics bool
}

func (s *slow) take(nse *registry.NetworkServiceEndpoint) {
	s.mu.Lock()
	s.taken = append(s.taken, nse.GetUrl())
	s.mu.Unlock()
	nse.Name = "another"
	time.Sleep(time.Second)
	if s.panics {
		panic("on request")
	}
}

func (s *slow) Register(_ context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	s.take(nse)
	return nse, nil
}

func (s *slow) Unregister(_ context.Context, nse *registry.NetworkServiceEndpoint) (*emptypb.Empty, error) {
	s.take(nse)
	return new(emptypb.Empty), nil
}

func named(name string, n int) *registry.NetworkServiceEndpoint {
	return &registry.NetworkServiceEndpoint{Name: name, Url: strconv.Itoa(n)}
}

func newChain(s *slow) registry.NetworkServiceEndpointRegistryServer {
	return next.NewNetworkServiceEndpointRegistryServer(serial.NewNetworkServiceEndpointRegistryServer(), s)
}

func TestOneName_InOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(slow)
		server := newChain(s)
		began := time.Now()
		var calls sync.WaitGroup
		for i := range 5 {
			calls.Go(func() {
				if i%2 == 0 {
					_, err := server.Register(t.Context(), named("nse", i))
					require.NoError(t, err)
					return
				}
				_, err := server.Unregister(t.Context(), named("nse", i))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		calls.Wait()
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, s.taken)
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

func TestOtherNames_DoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newChain(new(slow))
		began := time.Now()
		var calls sync.WaitGroup
		for i := range 5 {
			calls.Go(func() {
				_, err := server.Register(t.Context(), named(strconv.Itoa(i), i))
				require.NoError(t, err)
			})
		}
		calls.Wait()
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestWaiting_EndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(slow)
		server := newChain(s)
		var calls sync.WaitGroup
		for i := range 3 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				began := time.Now()
				_, err := server.Register(ctx, named("nse", i))
				if i == 0 { // it has its turn, and what is behind does not look at its context
					require.NoError(t, err)
					return
				}
				require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
				require.Equal(t, 500*time.Millisecond, time.Since(began))
			})
			synctest.Wait()
		}
		_, err := server.Unregister(t.Context(), named("nse", 3))
		require.NoError(t, err)
		calls.Wait()
		require.Equal(t, []string{"0", "3"}, s.taken)
	})
}

func TestPanic_PassesTheTurnOn(t *testing.T) {
	s := &slow{panics: true}
	server := newChain(s)
	require.Panics(t, func() { _, _ = server.Register(t.Context(), named("nse", 1)) })
	s.panics = false
	_, err := server.Register(t.Context(), named("nse", 2))
	require.NoError(t, err)
}

// counting fails if two calls for one name are behind it at the same time.
type counting struct {
	registry.NetworkServiceEndpointRegistryServer
	t      *testing.T
	inside [3]atomic.Int32
}

func (c *counting) Register(_ context.Context, nse *registry.NetworkServiceEndpoint) (*registry.NetworkServiceEndpoint, error) {
	n, err := strconv.Atoi(nse.GetName())
	require.NoError(c.t, err)
	require.EqualValues(c.t, 1, c.inside[n].Add(1))
	c.inside[n].Add(-1)
	return nse, nil
}

func TestManyThatGiveUp(t *testing.T) {
	server := next.NewNetworkServiceEndpointRegistryServer(
		serial.NewNetworkServiceEndpointRegistryServer(), &counting{t: t})
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			for range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(20))*time.Microsecond)
				_, _ = server.Register(ctx, named(strconv.Itoa(rand.IntN(3)), 0))
				cancel()
			}
		})
	}
	calls.Wait()
	// Nobody is left in anybody's way.
	for i := range 3 {
		_, err := server.Register(t.Context(), named(strconv.Itoa(i), 0))
		require.NoError(t, err)
	}
}

package hop_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// attempts notes when attempts at connections began, and how long each lasted.
type attempts struct {
	mu    sync.Mutex
	began []time.Time
	took  []time.Duration
}

// watched is a dialer whose attempts are noted until they fail or their connection
// is closed.
func (a *attempts) watched(dial hop.Dialer) hop.Dialer {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		began := time.Now()
		a.mu.Lock()
		a.began = append(a.began, began)
		a.mu.Unlock()
		conn, err := dial(ctx, addr)
		if err != nil {
			a.ended(began)
			return nil, err
		}
		return &attempted{Conn: conn, close: sync.OnceFunc(func() { a.ended(began) })}, nil
	}
}

func (a *attempts) ended(began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, time.Since(began))
}

// all returns how long attempts lasted, and the pauses before all but the first.
func (a *attempts) all() (took, pauses []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.began[:len(a.began)-1] {
		pauses = append(pauses, a.began[i+1].Sub(a.began[i])-a.took[i])
	}
	return append(took, a.took...), pauses
}

type attempted struct {
	net.Conn
	close func()
}

func (c *attempted) Close() error {
	c.close()
	return c.Conn.Close()
}

// withDialer plays with a pool whose connections are made by dial.
func withDialer(t *testing.T, opts hop.Options, dial hop.Dialer, play func(t *testing.T, pool *hop.Pool)) {
	t.Helper()
	opts.Dialer = dial
	opts.DialOptions = append(opts.DialOptions, grpc.WithTransportCredentials(insecure.NewCredentials()))
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	play(t, hop.NewPool(ctx, &wg, opts))
	cancel()
	wg.Wait()
}

func TestAttempt_IsBoundedWhateverTheBackoff(t *testing.T) {
	for name, kill := range map[string]func(*lbtest.Wire){
		"nobody there": func(wire *lbtest.Wire) { wire.Hang(farAddr, true) },
		// TCP is answered, by a balancer, and nothing behind it.
		"no handshake": func(wire *lbtest.Wire) { wire.Blackhole(farAddr, true) },
	} {
		for _, opts := range []hop.Options{
			{DialTimeout: 4 * time.Second, MaxBackoff: 5 * time.Second},
			{DialTimeout: time.Second, MaxBackoff: 30 * time.Second},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wire, noted := lbtest.NewWire(), new(attempts)
					accept(t, wire.Listen(farAddr))
					kill(wire)
					withDialer(t, opts, noted.watched(wire.Dial), func(t *testing.T, pool *hop.Pool) {
						h := take(t, pool)
						defer h.Release()
						time.Sleep(10 * time.Minute)
					})
					took, _ := noted.all()
					require.Greater(t, len(took), 15)
					for _, d := range took[:len(took)-1] {
						require.Equal(t, opts.DialTimeout, d, "%v", took)
					}
				})
			})
		}
	}
}

// accept takes connections and says nothing, until the listener is closed.
func accept(t *testing.T, listener net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := listener.Accept(); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
}

// The bound is that of an attempt, and not that of the connection.
func TestAttempt_BoundEndsWithTheHandshake(t *testing.T) {
	inBubble(t, hop.Options{DialTimeout: time.Second}, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, _ *countingHealth) {
		wire.SetLag(farAddr, 100*time.Millisecond)
		h := take(t, pool)
		defer h.Release()
		for range 100 {
			require.NoError(t, check(h, time.Second))
			time.Sleep(time.Minute)
		}
		require.Equal(t, 1, wire.Dials(farAddr))
	})
}

func TestBackoff_JitterAndCap(t *testing.T) {
	const longest = 5 * time.Second
	var all [][]time.Duration
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			wire, noted := lbtest.NewWire(), new(attempts) // nobody listens
			withDialer(t, hop.Options{MaxBackoff: longest}, noted.watched(wire.Dial), func(t *testing.T, pool *hop.Pool) {
				h := take(t, pool)
				defer h.Release()
				time.Sleep(30 * time.Minute)
			})
			_, pauses := noted.all()
			require.Equal(t, 200*time.Millisecond, pauses[0])
			different := map[time.Duration]bool{}
			for _, pause := range pauses[10:] {
				require.LessOrEqual(t, pause, longest)
				require.GreaterOrEqual(t, pause, longest/2)
				different[pause] = true
			}
			require.Greater(t, len(different), 100, "left to chance")
			all = append(all, pauses)
		})
	}
	require.NotEqual(t, all[0][:20], all[1][:20], "two hops do not come back together")
}

// serveReal serves a stock health server at an address of this machine.
func serveReal(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, addr)
	require.NoError(t, err)
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	end := sync.OnceFunc(func() {
		s.Stop()
		require.NoError(t, <-served)
	})
	t.Cleanup(end)
	return &cuttable{Listener: listener, cut: end}
}

// cuttable is a listener whose server can be ended.
type cuttable struct {
	net.Listener
	cut func()
}

// Every form that addresses have in manifests and registries, over real sockets.
func TestForms(t *testing.T) {
	_, port, err := net.SplitHostPort(serveReal(t, "tcp4", "127.0.0.1:0").Addr().String())
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	serveReal(t, "unix", socket)
	tryForms(t, "registry:"+port, "tcp://registry:"+port, "tcp://127.0.0.1:"+port, "tcp://:"+port, "unix://"+socket)
	if listener, err := net.Listen("tcp6", "[::1]:0"); err == nil { // a machine may be without
		require.NoError(t, listener.Close())
		tryForms(t, "tcp://"+serveReal(t, "tcp6", "[::1]:0").Addr().String())
	}
}

// What reaches the dialer is what it needs, also of an address with a zone, and
// whatever the port.
func TestForms_AddressesThatAreDialled(t *testing.T) {
	for form, want := range map[string]string{
		"tcp://[fd00::1]:5004":        "[fd00::1]:5004",
		"tcp://[fe80::1%25eth0]:5001": "[fe80::1%eth0]:5001",
		"tcp://10.0.0.1:1":            "10.0.0.1:1",
		"tcp://six:65535":             "[fd00::2]:65535",
		"six:5002":                    "[fd00::2]:5002",
	} {
		synctest.Test(t, func(t *testing.T) {
			dialled := make(chan string, 1)
			dial := func(_ context.Context, addr string) (net.Conn, error) {
				select {
				case dialled <- addr:
				default:
				}
				return nil, syscall.ECONNREFUSED
			}
			opts := hop.Options{LookupHost: func(context.Context, string) ([]string, error) { return []string{"fd00::2"}, nil }}
			withDialer(t, opts, dial, func(t *testing.T, pool *hop.Pool) {
				u, err := url.Parse(form)
				require.NoError(t, err)
				h, err := pool.Take(u)
				require.NoError(t, err)
				defer h.Release()
				require.Equal(t, want, <-dialled, form)
			})
		})
	}
}

func tryForms(t *testing.T, forms ...string) {
	t.Helper()
	opts := hop.Options{LookupHost: func(_ context.Context, host string) ([]string, error) {
		if host != "registry" {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		return []string{"127.0.0.1"}, nil
	}}
	withDialer(t, opts, nil, func(t *testing.T, pool *hop.Pool) {
		for _, form := range forms {
			u, err := url.Parse(form)
			require.NoError(t, err)
			h, err := pool.Take(u)
			require.NoError(t, err, form)
			require.NoError(t, check(h, 5*time.Second), form)
			h.Release()
		}
	})
}

package hop_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	otherAddr = "10.0.0.2:5004"
	thirdAddr = "10.0.0.3:5004"
)

var nameURL = &url.URL{Scheme: "tcp", Host: "proxy.cluster2:5004"}

// answers is a name server for one name.
type answers struct {
	mu    sync.Mutex
	hosts []string
	err   error
	// silent answers nothing at all.
	silent bool
	asked  []time.Time
}

func (a *answers) set(hosts ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hosts, a.err, a.silent = hosts, nil, false
}

func (a *answers) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *answers) swallow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silent = true
}

func (a *answers) lookUp(ctx context.Context, host string) ([]string, error) {
	a.mu.Lock()
	a.asked = append(a.asked, time.Now())
	hosts, err, silent := slices.Clone(a.hosts), a.err, a.silent
	a.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if host != nameURL.Hostname() {
		err = errors.New("who is " + host)
	}
	return hosts, err
}

// since returns how long after a time the name was asked for.
func (a *answers) since(began time.Time) (after []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.asked {
		if !at.Before(began) {
			after = append(after, at.Sub(began))
		}
	}
	return after
}

// named plays with a hop to a name, behind which are stock servers at three addresses.
func named(t *testing.T, opts hop.Options, play func(t *testing.T, h func() *hop.Handle, wire *lbtest.Wire, dns *answers)) {
	t.Helper()
	dns := new(answers)
	opts.LookupHost = dns.lookUp
	inBubble(t, opts, func(t *testing.T, pool *hop.Pool, wire *lbtest.Wire, _ *countingHealth) {
		for _, addr := range []string{otherAddr, thirdAddr} {
			s := grpc.NewServer()
			grpc_health_v1.RegisterHealthServer(s, health.NewServer())
			listener := wire.Listen(addr)
			go func() { _ = s.Serve(listener) }()
			t.Cleanup(s.Stop)
		}
		play(t, func() *hop.Handle {
			h, err := pool.Take(nameURL)
			require.NoError(t, err)
			return h
		}, wire, dns)
	})
}

func TestName_EveryAddressIsTried(t *testing.T) {
	for how, kill := range map[string]func(*lbtest.Wire){
		"refuses":      func(wire *lbtest.Wire) { wire.Refuse(farAddr, true); wire.Refuse(otherAddr, true) },
		"black hole":   func(wire *lbtest.Wire) { wire.Blackhole(farAddr, true); wire.Blackhole(otherAddr, true) },
		"nobody there": func(wire *lbtest.Wire) { wire.Hang(farAddr, true); wire.Hang(otherAddr, true) },
	} {
		t.Run("the first two: "+how, func(t *testing.T) {
			named(t, hop.Options{}, func(t *testing.T, take func() *hop.Handle, wire *lbtest.Wire, dns *answers) {
				dns.set("10.0.0.1", "10.0.0.2", "10.0.0.3")
				kill(wire)
				h := take()
				defer h.Release()
				began := time.Now()
				require.NoError(t, check(h, 4*time.Second), "inside a caller's first attempt")
				require.Less(t, time.Since(began), time.Second)
				for range 3 {
					wire.Cut(thirdAddr)
					time.Sleep(600 * time.Millisecond)
					require.True(t, h.Connected())
				}
			})
		})
	}
}

func TestName_WorkingConnectionStaysAndALostOneFollows(t *testing.T) {
	named(t, hop.Options{}, func(t *testing.T, take func() *hop.Handle, wire *lbtest.Wire, dns *answers) {
		dns.set("10.0.0.1", "10.0.0.2")
		wire.Refuse(farAddr, true) // a failed attempt asks for a look-up
		h := take()
		defer h.Release()
		require.NoError(t, check(h, time.Second))
		require.Equal(t, 1, wire.Open(otherAddr))

		dns.set("10.0.0.3")
		time.Sleep(time.Hour)
		require.NoError(t, check(h, time.Second))
		require.Equal(t, 1, wire.Dials(otherAddr))
		require.Zero(t, wire.Dials(thirdAddr), "what works does not move")

		wire.Refuse(otherAddr, true)
		wire.Cut(otherAddr)
		time.Sleep(10 * time.Millisecond)
		require.True(t, h.Connected(), "at once")
		require.Equal(t, 1, wire.Open(thirdAddr))
		time.Sleep(time.Minute)
		require.LessOrEqual(t, wire.Dials(otherAddr), 2, "the old address is let go")
	})
}

func TestName_MovesIntoABlackHoleAndOut(t *testing.T) {
	named(t, hop.Options{ProbeInterval: 15 * time.Second}, func(t *testing.T, take func() *hop.Handle, wire *lbtest.Wire, dns *answers) {
		dns.set("10.0.0.1")
		h := take()
		defer h.Release()
		require.NoError(t, check(h, time.Second))
		time.Sleep(time.Minute)
		wire.Blackhole(farAddr, true)
		wire.Hang(farAddr, true)
		time.Sleep(10 * time.Second)
		dns.set("10.0.0.2")
		time.Sleep(20 * time.Second)
		require.True(t, h.Connected(), "25 s to notice, and then at once")
	})
}

// What is answered late is found soon: gRPC's own resolver notices the end of an
// outage of 16 s after 25 s, and of 2 min up to a minute later.
func TestName_OutageOfTheNameServerIsOverSoonAfterItsEnd(t *testing.T) {
	for what, begin := range map[string]func(*answers){
		"refuses": func(dns *answers) { dns.fail(errors.New("connection refused")) },
		"no such host": func(dns *answers) {
			dns.fail(&net.DNSError{Err: "no such host", Name: nameURL.Host, IsNotFound: true})
		},
		"answers nothing": func(dns *answers) { dns.set() },
		"is silent":       func(dns *answers) { dns.swallow() },
	} {
		for _, outage := range []time.Duration{3 * time.Second, 16 * time.Second, 2 * time.Minute, time.Hour} {
			t.Run(what+" for "+outage.String(), func(t *testing.T) {
				named(t, hop.Options{}, func(t *testing.T, take func() *hop.Handle, wire *lbtest.Wire, dns *answers) {
					dns.set("10.0.0.1")
					h := take()
					defer h.Release()
					require.NoError(t, check(h, time.Second))
					time.Sleep(time.Minute)

					began := time.Now()
					begin(dns)
					wire.Refuse(farAddr, true)
					wire.Cut(farAddr)
					time.Sleep(outage)
					dns.set("10.0.0.2")
					bound := hop.DefaultMaxBackoff
					if what == "is silent" {
						bound = 6 * time.Second // of a look-up that is under way
					}
					time.Sleep(bound)
					require.True(t, h.Connected(), "%v", dns.since(began))

					var last time.Duration
					asked := dns.since(began)
					for _, after := range asked {
						require.LessOrEqual(t, after-last, hop.DefaultMaxBackoff+6*time.Second, "%v", asked)
						last = after
					}
					if outage == time.Hour {
						require.Greater(t, len(asked), 300)
						require.Less(t, len(asked), 2000, "no storm either")
					}
				})
			})
		}
	}
}

// The first connection, a registry's say, with the name server not up yet.
func TestName_NotKnownYet(t *testing.T) {
	named(t, hop.Options{MaxBackoff: time.Second}, func(t *testing.T, take func() *hop.Handle, _ *lbtest.Wire, dns *answers) {
		dns.fail(errors.New("the name server restarts"))
		h := take()
		defer h.Release()
		require.ErrorContains(t, check(h, 10*time.Second), "the name server restarts")
		time.Sleep(time.Minute)
		dns.set("10.0.0.1")
		require.NoError(t, check(h, 3*time.Second))
	})
}

// While the old address works, a name that is gone costs nothing.
func TestName_GoneFromTheNameServer(t *testing.T) {
	named(t, hop.Options{}, func(t *testing.T, take func() *hop.Handle, wire *lbtest.Wire, dns *answers) {
		dns.set("10.0.0.1")
		h := take()
		defer h.Release()
		require.NoError(t, check(h, time.Second))
		dns.fail(&net.DNSError{Err: "no such host", Name: nameURL.Host, IsNotFound: true})
		for range 10 {
			time.Sleep(time.Minute)
			wire.Cut(farAddr)
			time.Sleep(10 * time.Millisecond)
			require.True(t, h.Connected(), "at the address that is known")
		}
		began := time.Now()
		time.Sleep(time.Hour)
		require.Empty(t, dns.since(began), "nobody asks while it is up")
	})
}

func TestName_LookUpsAreApart(t *testing.T) {
	named(t, hop.Options{}, func(t *testing.T, take func() *hop.Handle, wire *lbtest.Wire, dns *answers) {
		dns.set("10.0.0.1", "10.0.0.2", "10.0.0.3")
		for _, addr := range []string{farAddr, otherAddr, thirdAddr} {
			wire.Refuse(addr, true)
		}
		h := take()
		defer h.Release()
		began := time.Now()
		time.Sleep(10 * time.Minute)
		asked := dns.since(began)
		require.Greater(t, len(asked), 100, "each failure asks")
		for i := range asked[1:] {
			require.GreaterOrEqual(t, asked[i+1]-asked[i], time.Second)
		}
		synctest.Wait()
	})
}

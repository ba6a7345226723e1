package hop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
)

// findWatch opens a stream of the kind that a registry's is, and tells when it has ended.
func findWatch(t *testing.T, c grpc.ClientConnInterface) (ended func() bool, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := grpc_health_v1.NewHealthClient(c).Watch(ctx, new(grpc_health_v1.HealthCheckRequest))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = stream.Recv()
	}()
	return func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, cancel
}

func TestWatch_KeepsItsConnectionOverRotations(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		ended, stop := findWatch(t, i.pool.Client(farURL))
		for range 10 {
			time.Sleep(30 * time.Minute)
			require.NoError(t, i.own.Rotate())
			require.NoError(t, i.far.Rotate())
			time.Sleep(time.Minute)
			require.Equal(t, 2, i.wire.Open(farAddr), "its own, and the current one")
		}
		require.False(t, ended())
		stop()
		synctest.Wait()
		require.Equal(t, 1, i.wire.Open(farAddr))
	})
}

func TestWatch_OldConnectionIsNotDialledAgain(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		ended, stop := findWatch(t, i.pool.Client(farURL))
		defer stop()
		require.NoError(t, i.own.Rotate())
		time.Sleep(time.Minute)
		require.Equal(t, 2, i.wire.Dials(farAddr))
		i.wire.Cut(farAddr)
		time.Sleep(time.Minute)
		require.True(t, ended())
		require.Equal(t, 3, i.wire.Dials(farAddr), "the current one alone")
		require.Equal(t, 1, i.wire.Open(farAddr))
	})
}

func TestWatch_OldConnectionsAreBounded(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		client := i.pool.Client(farURL)
		var ended []func() bool
		for range 20 {
			e, stop := findWatch(t, client)
			defer stop()
			ended = append(ended, e)
			require.NoError(t, i.own.Rotate())
			time.Sleep(time.Minute)
		}
		require.Equal(t, hop.KeptMost+1, i.wire.Open(farAddr))
		for n, e := range ended {
			require.Equal(t, n < 20-hop.KeptMost, e(), "the oldest go first")
		}
	})
}

func TestIdentity_NothingIsLeftOfAHopThatNobodyUses(t *testing.T) {
	withIdentities(t, time.Hour, 10*time.Minute, func(t *testing.T, i *identities) {
		h := take(t, i.pool)
		require.NoError(t, check(h, time.Second))
		h.Release()
		time.Sleep(10 * time.Second)
		require.NoError(t, i.own.Rotate())
		time.Sleep(time.Minute)
		require.Zero(t, i.wire.Open(farAddr))
	})
}

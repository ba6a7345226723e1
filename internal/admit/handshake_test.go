package admit

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHandshakesWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandshakes()
		client, raw := net.Pipe()
		defer func() { _ = client.Close() }()
		var leaves []func()
		for range maxHandshakes {
			leave, ok := h.enter(raw)
			require.True(t, ok)
			leaves = append(leaves, leave)
		}
		began := time.Now()
		_, err := raw.Read(make([]byte, 1))
		require.Error(t, err, "where there are many, none may take its time")
		require.Equal(t, hurried, time.Since(began))

		began = time.Now()
		_, ok := h.enter(raw)
		require.False(t, ok)
		require.Equal(t, maxWait, time.Since(began))

		entered := make(chan bool, maxQueued)
		for range maxQueued {
			go func() { _, ok := h.enter(raw); entered <- ok }()
		}
		synctest.Wait()
		began = time.Now()
		_, ok = h.enter(raw)
		require.False(t, ok)
		require.Zero(t, time.Since(began), "too many wait already")
		leaves[0]()
		require.True(t, <-entered)
		for range maxQueued - 1 {
			require.False(t, <-entered)
		}
	})
}

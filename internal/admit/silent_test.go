package admit

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// arrival is a connection that waits for its peer to speak.
type arrival struct {
	peer   net.Conn
	spoken chan net.Conn // nil if it had to go
}

func (s *silents) arrive(t *testing.T) *arrival {
	peer, raw := net.Pipe()
	a := &arrival{peer: peer, spoken: make(chan net.Conn, 1)}
	go func() {
		conn, err := s.await(raw)
		if err != nil {
			_ = raw.Close()
		}
		a.spoken <- conn
	}()
	t.Cleanup(func() { _ = peer.Close(); _ = raw.Close() })
	synctest.Wait()
	return a
}

func TestSilents_WhatWasSaidIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(silents)
		a := s.arrive(t)
		require.Empty(t, a.spoken)
		go func() {
			_, _ = a.peer.Write([]byte("hello"))
			_ = a.peer.Close()
		}()
		conn := <-a.spoken
		n, err := conn.Read(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		said, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "hello", string(said))
		require.Zero(t, s.waiting.Len())
	})
}

func TestSilents_NobodyIsSilentForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(silents)
		a := s.arrive(t)
		began := time.Now()
		require.Nil(t, <-a.spoken)
		require.Equal(t, maxSilence, time.Since(began))
		left := s.arrive(t)
		require.NoError(t, left.peer.Close())
		require.Nil(t, <-left.spoken)
		require.Zero(t, s.waiting.Len())
	})
}

// A thousand forwarders that come back at once, on few cores, speak later than they connect.
func TestSilents_ABurstOfHonestPeersMayStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(silents)
		var all []*arrival
		for range mostSilent {
			all = append(all, s.arrive(t))
		}
		time.Sleep(leastSilence - time.Millisecond)
		for _, a := range all {
			go func() { _, _ = a.peer.Write([]byte{22}) }()
			require.NotNil(t, <-a.spoken)
		}
	})
}

func TestSilents_ThereIsAnEndToThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(silents)
		var all []*arrival
		for range mostSilent + 1 {
			all = append(all, s.arrive(t))
		}
		require.Nil(t, <-all[0].spoken, "the oldest")
		require.Empty(t, all[1].spoken)
		require.Equal(t, mostSilent, s.waiting.Len())
		time.Sleep(leastSilence)
		s.arrive(t)
		require.Nil(t, <-all[1].spoken, "one that has been silent for too long")
	})
}

// Two hundred a second that say nothing, for a minute: whoever speaks gets through at
// once, and as many are there as may be.
func TestSilents_HoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := new(silents), newHandshakes()
		gone := 0
		var all []*arrival
		for n := range 60 * 200 {
			all = append(all, s.arrive(t))
			time.Sleep(time.Second / 200)
			if n%100 != 0 {
				continue
			}
			honest := s.arrive(t)
			began := time.Now()
			go func() { _, _ = honest.peer.Write([]byte{22}) }()
			conn := <-honest.spoken
			require.NotNil(t, conn)
			leave, ok := h.enter(conn)
			require.True(t, ok)
			leave()
			require.Zero(t, time.Since(began))
			require.LessOrEqual(t, s.waiting.Len(), maxSilent)
		}
		for _, a := range all {
			if len(a.spoken) == 1 {
				gone++
			}
		}
		require.GreaterOrEqual(t, gone, 60*200-maxSilent)
		time.Sleep(maxSilence)
		synctest.Wait()
		require.Zero(t, s.waiting.Len())
	})
}

//go:build linux

package hostile_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// oversizedHeaders sends headers longer than the server has said it takes, and
// headers that do not end.
func oversizedHeaders(t *testing.T, w *witness) {
	answered := newTable("headers", "answered with")
	for range 50 {
		c := w.p.dialHTTP(t, w.p.addr)
		c.write(split(1, callHeaders(networkService+"Request", "x", strings.Repeat("x", 100<<10)), flagEndHeaders))
		answered.add("100 KiB", c.verdict())
		_ = c.Close()
	}
	for range 3 {
		c := w.p.dialHTTP(t, w.p.addr)
		taken := c.write(split(1, block("x", strings.Repeat("x", 8<<20)), 0))
		answered.add("8 MiB without an end", c.verdict())
		t.Logf("of headers without an end it took %d KiB", taken>>10)
		_ = c.Close()
	}
	t.Logf("\n%s", answered)
	for _, outcomes := range answered.rows {
		require.NotContains(t, outcomes, nothing)
	}
}

// split puts a block of headers into as many frames as it needs. Last are the
// flags of the last one.
func split(stream uint32, block []byte, last byte) []byte {
	var b []byte
	for kind := byte(frameHeaders); len(block) > 0; kind = frameContinuation {
		n, flags := min(len(block), maxFrame), byte(0)
		if n == len(block) {
			flags = last
		}
		b, block = append(b, frame(kind, flags, stream, block[:n])...), block[n:]
	}
	return b
}

// garbage sends what is no HTTP/2, or no good one.
func garbage(t *testing.T, w *witness) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	answered := newTable("garbage", "answered with")
	for _, g := range []struct {
		name, want string
		bytes      []byte
	}{
		{"noise in frames", ended, frame(frameHeaders, flagEndHeaders, 1, noise[:maxFrame])},
		{"noise", ended, noise},
		{"frame of 16 MiB", ended, append([]byte{0xff, 0xff, 0xff, frameData, 0, 0, 0, 0, 1}, noise...)},
		{"stream of the server", "GOAWAY 1", frame(frameHeaders, flagEndHeaders, 2, callHeaders("/x"))},
		{"flood of pings", "GOAWAY 11", bytes.Repeat(frame(framePing, 0, 0, make([]byte, 8)), 10_000)},
		{"flood of priorities, then noise", ended, append(bytes.Repeat(frame(framePriority, 0, 1, []byte{0, 0, 0, 3, 1}), 100_000), noise...)},
		{"flood of empty data, then noise", ended, append(frame(frameHeaders, flagEndHeaders, 1, callHeaders(networkService+"Request")),
			append(bytes.Repeat(frame(frameData, 0, 1, nil), 100_000), noise...)...)},
		// What follows leaves the connection as it is, which costs nobody else.
		{"flood of settings", nothing, bytes.Repeat(frame(frameSettings, 0, 0, nil), 10_000)},
		{"window past its end", nothing, bytes.Repeat(frame(frameWindowUpdate, 0, 0, []byte{0x7f, 0xff, 0xff, 0xff}), 3)},
		{"headers that go on with nothing", nothing, append(frame(frameHeaders, 0, 1, callHeaders("/x")),
			bytes.Repeat(frame(frameContinuation, 0, 1, nil), 100_000)...)},
	} {
		for range 5 {
			c := w.p.dialHTTP(t, w.p.addr)
			c.write(g.bytes)
			got := c.verdict()
			answered.add(g.name, got)
			require.Equal(t, g.want, got, g.name)
			_ = c.Close()
			if got == nothing { // takes its time
				break
			}
		}
	}
	c := w.p.dialTLS(t, w.p.addr)
	c.write(noise)
	answered.add("no preface", c.verdict())
	require.Contains(t, answered.rows["no preface"], ended)
	_ = c.Close()
	t.Logf("\n%s", answered)
}

// resetFlood opens calls and resets them at once, faster than any client does.
func resetFlood(t *testing.T, w *witness) {
	selector := wireOf(t, &networkservice.MonitorScopeSelector{})
	headers := callHeaders(monitorService + "MonitorConnections")
	var wg sync.WaitGroup
	for range 2 {
		c := w.p.dialHTTP(t, w.p.addr)
		heard := make(chan string, 1)
		wg.Go(func() { heard <- c.untilPong() })
		for i := range resets / 2 {
			id := uint32(2*i + 1)
			call := append(frame(frameHeaders, flagEndHeaders, id, headers), frame(frameData, flagEndStream, id, message(selector))...)
			c.write(append(call, frame(frameReset, 0, id, []byte{0, 0, 0, 8})...))
		}
		c.write(frame(framePing, 0, 0, make([]byte, 8)))
		t.Logf("after %d calls that were reset: %s", resets/2, <-heard)
		_ = c.Close()
	}
	wg.Wait()
}

// cancelFlood makes Requests and gives each up before the answer, which the far
// side holds back long enough for that: one that is given up while its answer is
// on its way is a connection like any other to the process.
func cancelFlood(t *testing.T, w *witness) {
	w.p.far.Set(lbtest.Faults{RequestDelay: 100 * time.Millisecond})
	defer w.p.far.Set(lbtest.Faults{})
	conn := w.p.dial(t, w.p.addr, w.p.tokens())
	defer func() { _ = conn.Close() }()
	var wg sync.WaitGroup
	for worker := range 2 {
		wg.Go(func() {
			for i := range givenUp / 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				_, _ = networkservice.NewNetworkServiceClient(conn).Request(ctx, goodRequest(fmt.Sprintf("given-up-%d-%d", worker, i)), grpc.WaitForReady(true))
				cancel()
			}
		})
	}
	wg.Wait()
}

//go:build linux

package hostile_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	halves      = 500
	streams     = 10_000
	connections = 2_000
	events      = 2_000
	resets      = 10_000
	givenUp     = 400
	// cutAfter is when connections that go on with no handshake are cut, and some.
	cutAfter = 15 * time.Second
	// streamShare bounds what a stream may cost, as a multiple of what it costs
	// today: it is to be seen when that grows.
	streamShare = 32 << 10
	// connectionShare is the same for an idle connection.
	connectionShare = 96 << 10
	// soon is how fast an event reaches those who read.
	soon = 100 * time.Millisecond
)

func TestMisuse(t *testing.T) {
	p := start(t, newNeighbours(t), build(t, false))
	w := watch(t, p)
	warm(t, p)
	for _, m := range []struct {
		name string
		do   func(t *testing.T, w *witness)
	}{
		{"half a handshake", halfHandshakes},
		{"slow reader", slowReader},
		{"many streams", manyStreams},
		{"many connections", manyConnections},
		{"oversized headers", oversizedHeaders},
		{"garbage after the handshake", garbage},
		{"flood of resets", resetFlood},
		{"flood of calls given up", cancelFlood},
	} {
		t.Run(m.name, func(t *testing.T) { w.misuse(t, func(t *testing.T) { m.do(t, w) }) })
	}
}

// warm has the process carry as many calls as it is going to, so that what a
// runtime keeps for good once it was used counts as settled: descriptors of
// goroutines, and maps, which do not shrink.
func warm(t *testing.T, p *process) {
	fresh := p.look(t)
	subscribeMany(t, p)()
	last, same := p.look(t), 0
	require.Eventually(t, func() bool {
		now := p.look(t)
		if same++; now.memory < last.memory*98/100 {
			same = 0
		}
		last = now
		return same == 4
	}, 2*returnTime, 5*tick)
	t.Logf("fresh: %s; once used: %s", fresh, last)
}

// halfHandshakes holds connections open that say nothing, half a hello, or
// nothing more after TLS. All of them have to be ended by the server.
func halfHandshakes(t *testing.T, w *witness) {
	var conns []net.Conn
	for i := range halves {
		if i%5 == 0 {
			conns = append(conns, w.p.dialTLS(t, w.p.addr))
			continue
		}
		conn, err := net.Dial("tcp", w.p.addr)
		require.NoError(t, err)
		conns = append(conns, conn)
		if i%2 == 0 {
			_, err = conn.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3})
			require.NoError(t, err)
		}
	}
	deadline := time.Now().Add(cutAfter)
	for _, conn := range conns {
		require.NoError(t, conn.SetReadDeadline(deadline))
		_, err := io.Copy(io.Discard, conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "a connection without a handshake is kept")
		_ = conn.Close()
	}
}

// slowReader has one subscriber that does not read while many events happen, and
// one that does.
func slowReader(t *testing.T, w *witness) {
	conn := w.p.dial(t, w.p.addr, w.p.tokens())
	defer func() { _ = conn.Close() }()
	client := networkservice.NewNetworkServiceClient(conn)
	leg, err := client.Request(t.Context(), goodRequest("watched"))
	require.NoError(t, err)
	selector := &networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: leg.GetId()}}}
	slow, quick := subscribe(t, w, selector), subscribe(t, w, selector)
	_, err = quick.Recv()
	require.NoError(t, err)

	late, slowest := 0, time.Duration(0)
	for i := range events {
		began := time.Now()
		w.p.far.Say(func(conn *networkservice.Connection) {
			conn.Context.ExtraContext = map[string]string{"event": fmt.Sprint(i)}
		})
		for {
			event, err := quick.Recv()
			require.NoError(t, err)
			if numberOf(event) == fmt.Sprint(i) {
				break
			}
		}
		took := time.Since(began)
		slowest = max(slowest, took)
		if took > soon {
			late++
		}
	}
	got := 0
	for err = nil; err == nil; got++ {
		_, err = slow.Recv()
	}
	t.Logf("the slow reader got %d of %d events before it was ended; the other all, %d later than %s, the slowest after %s",
		got-1, events, late, soon, slowest.Round(time.Millisecond))
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.Less(t, late, events/100)
	_, err = client.Close(t.Context(), leg)
	require.NoError(t, err)
}

// numberOf returns what the far side has called an event.
func numberOf(event *networkservice.ConnectionEvent) string {
	for _, conn := range event.GetConnections() {
		return conn.GetContext().GetExtraContext()["event"]
	}
	return ""
}

func subscribe(t *testing.T, w *witness, selector *networkservice.MonitorScopeSelector) networkservice.MonitorConnection_MonitorConnectionsClient {
	conn := w.p.dial(t, w.p.addr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	stream, err := networkservice.NewMonitorConnectionClient(conn).MonitorConnections(ctx, selector)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
	})
	return stream
}

// manyStreams subscribes many times on one connection.
func manyStreams(t *testing.T, w *witness) {
	before := w.p.look(t)
	leave := subscribeMany(t, w.p)
	defer leave()
	during := w.p.look(t)
	each := (during.memory - before.memory) / streams
	t.Logf("with %d streams: %s; %d bytes for each", streams, during, each)
	require.Less(t, each, int64(streamShare))
	require.Greater(t, during.goroutines, streams)
}

// subscribeMany returns what ends the subscriptions. It counts on each having
// got its initial state.
func subscribeMany(t *testing.T, p *process) (leave func()) {
	const batch = 100 // fewer writes
	c := p.dialHTTP(t, p.addr)
	heard := make(chan error, 1)
	go func() { heard <- c.messages(streams) }()
	c.write(frame(frameWindowUpdate, 0, 0, []byte{1, 0, 0, 0})) // more than is going to come
	headers := callHeaders(monitorService + "MonitorConnections")
	var calls []byte
	for i := range streams {
		id := uint32(2*i + 1)
		selector := wireOf(t, &networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: fmt.Sprint(i)}}})
		calls = append(calls, frame(frameHeaders, flagEndHeaders, id, headers)...)
		calls = append(calls, frame(frameData, flagEndStream, id, message(selector))...)
		if i%batch == batch-1 {
			require.Equal(t, len(calls), c.write(calls))
			calls = calls[:0]
		}
	}
	require.NoError(t, <-heard)
	return func() { _ = c.Close() }
}

// manyConnections opens connections that are used for nothing.
func manyConnections(t *testing.T, w *witness) {
	before := w.p.look(t)
	conns := make([]rawConn, connections)
	for i := range conns {
		conns[i] = w.p.dialHTTP(t, w.p.addr)
	}
	during := w.p.look(t)
	each := (during.memory - before.memory) / connections
	t.Logf("with %d connections: %s; %d bytes for each", connections, during, each)
	require.Less(t, each, int64(connectionShare))
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
}

package admit

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// slow is a stream whose peer takes a message for each token.
type slow struct {
	grpc.ServerStream
	taken chan struct{}
}

func (s slow) SendMsg(any) error { <-s.taken; return nil }

func TestSendThatOutlivesItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(100 << 20)
		require.True(t, r.takes("a", amount{conns: 1}))
		conn, stream := &conn{room: r, holder: r.holder("a")}, slow{taken: make(chan struct{})}
		event := wrapperspb.String(strings.Repeat("x", 100<<10))
		begin := func() *call {
			c := &call{ServerStream: stream, admission: &Admission{room: r, log: log.Empty()}, conn: conn, events: true, held: amount{streams: 1}}
			require.True(t, c.begin())
			return c
		}
		send := func(c *call) {
			go func() { _ = c.SendMsg(event) }()
			synctest.Wait()
		}

		c := begin()
		send(c)
		require.Greater(t, r.loose, int64(connectionCost+streamCost+400<<10))
		stream.taken <- struct{}{}
		send(c)
		c.end()
		stream.taken <- struct{}{}
		synctest.Wait()
		require.EqualValues(t, connectionCost, r.loose, "the one before has been given back already")

		c = begin()
		c.end()
		send(c)
		require.EqualValues(t, connectionCost, r.loose, "nobody would give it back")
		stream.taken <- struct{}{}
	})
}

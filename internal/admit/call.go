package admit

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
)

// monitorMethod has a stream of events, of which a leg has one for its cost.
const monitorMethod = "/connection.MonitorConnection/MonitorConnections"

const (
	// maxWaiting is how long a call waits for its turn: a caller's try is 15 s, and the
	// call takes time as well.
	maxWaiting = 10 * time.Second
	// maxPause is the longest time between two looks for room.
	maxPause = 500 * time.Millisecond
)

// call is a call that has been let in, as its handler sees it. Refused ones have taken
// nothing.
//
// It is an interceptor of streams that lets calls in, and all methods are streams, so
// that it is asked before their message is read. (A tap would be asked earlier still,
// but grpc 1.79 does not end the context of what its tap refuses, and queues the answer
// without a bound for a peer that does not read.)
type call struct {
	grpc.ServerStream
	admission *Admission
	conn      *conn
	events    bool // it has a stream of answers
	// The rest is guarded by the room's lock.
	held  amount
	read  bool // its message is complete
	ended bool // its handler has returned
	// sent is what its last answer is charged with. It belongs to who sends.
	sent int64
}

// headersKey has how many bytes of headers a call has: to ask for them later is to have
// them copied.
type headersKey struct{}

// count counts a call, and refuses none. It is called by who reads.
func count(ctx context.Context, info *tap.Info) (context.Context, error) {
	c := connOf(ctx)
	if c == nil {
		return ctx, nil
	}
	c.undecided.Add(1)
	bytes := int64(0)
	for name, values := range info.Header {
		for _, value := range values {
			bytes += int64(len(name) + len(value))
		}
	}
	if bytes <= usualHeaders {
		return ctx, nil
	}
	return context.WithValue(ctx, headersKey{}, bytes), nil
}

// intercept is in front of every call, and returns when its handler has.
func (a *Admission) intercept(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	conn := connOf(ss.Context())
	if conn == nil { // a server without our Credentials
		return handler(srv, ss)
	}
	conn.decide()
	c := &call{ServerStream: ss, admission: a, conn: conn, events: info.IsServerStream}
	what, more := "another call", int64(0)
	switch {
	case info.FullMethod == monitorMethod:
		what, c.held.streams = "another subscription", 1
	case info.IsServerStream:
		what, c.held.bytes = "another watch", watchCost
	default:
		c.held.bytes, more = waitCost, requestCost-waitCost
	}
	if bytes, ok := ss.Context().Value(headersKey{}).(int64); ok {
		c.held.bytes += bytes - usualHeaders
	}
	if !c.begin() {
		return c.refuse(what)
	}
	defer c.end()
	if !c.await(more) {
		return c.refuse(what)
	}
	return handler(srv, c)
}

// refuse is for who has not got to its handler: its connection is slowed down.
func (c *call) refuse(what string) error {
	c.conn.refused.Store(true)
	return c.admission.refuse(what, c.conn.holder.id)
}

// await has the call hold so much more as soon as there is room for it. All the legs of
// a domain may come at once over one connection, and a forwarder makes a DOWN of a
// refresh that is refused.
func (c *call) await(bytes int64) bool {
	if c.growUpTo(beginFactor, bytes) {
		return true
	}
	end := time.NewTimer(maxWaiting)
	defer end.Stop()
	// Thousands may wait: those who have waited for long can wait a little longer.
	for pause := stallPause; ; pause = min(2*pause, maxPause) {
		select {
		case <-c.Context().Done():
			return false
		case <-end.C:
			return false
		case <-time.After(pause/2 + rand.N(pause)):
		}
		if c.growUpTo(beginFactor, bytes) {
			return true
		}
	}
}

func (c *call) begin() bool {
	r := c.conn.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.conn.closed || !r.take(c.conn.holder, c.held) {
		return false
	}
	c.conn.unread++
	return true
}

// end releases the call. A handler may have left a Send behind, which ends with the
// stream: that one neither takes nor gives back any more.
func (c *call) end() {
	r := c.conn.room
	r.mu.Lock()
	defer r.mu.Unlock()
	c.arrived(0)
	c.ended = true
	r.change(c.conn.holder, c.held.negative(), 0)
}

// arrived takes a message, or what has come of it, out of the inbox, once. The caller
// holds the room's lock.
func (c *call) arrived(bytes int64) {
	if !c.read {
		c.read = true
		c.conn.complete(bytes)
	}
}

// grow has the call hold so much more if there is room, or less.
func (c *call) grow(bytes int64) bool { return c.growUpTo(factor, bytes) }

// growUpTo does if its peer then holds no more than so many times what is free.
func (c *call) growUpTo(factor, bytes int64) bool {
	r := c.conn.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.ended {
		return true
	}
	if !r.takeUpTo(factor, c.conn.holder, amount{bytes: bytes}) {
		return false
	}
	c.held.bytes += bytes
	return true
}

// RecvMsg implements grpc.ServerStream, and charges the message in the place of its
// bytes.
func (c *call) RecvMsg(m any) error {
	in := sized{message: m}
	if err := c.ServerStream.RecvMsg(&in); err != nil {
		return err
	}
	c.conn.room.mu.Lock()
	c.arrived(in.bytes)
	c.conn.room.mu.Unlock()
	if more := extra(in.bytes); more > 0 && !c.grow(more) {
		return c.admission.refuse("the message", c.conn.holder.id)
	}
	return nil
}

// SendMsg implements grpc.ServerStream. gRPC keeps one message of a stream that the
// peer does not take, however large it is; then it blocks.
func (c *call) SendMsg(m any) error {
	size := int64(0)
	if message, ok := m.(proto.Message); ok && c.events {
		size = int64(proto.Size(message))
	}
	if size *= messageCopies; size < large*messageCopies {
		size = 0 // it is in what the stream costs
	}
	if size > 0 && !c.grow(size) {
		return c.admission.refuse("an event", c.conn.holder.id)
	}
	err := c.ServerStream.SendMsg(m)
	if c.sent > 0 {
		c.grow(-c.sent) // the one before has left
	}
	c.sent = size
	return err
}

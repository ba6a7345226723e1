package admit

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

const (
	// stallTimeout is how long a connection is not read from before it is closed.
	stallTimeout = 10 * time.Second
	// stallPause is the time between two looks for room.
	stallPause = 20 * time.Millisecond
	// refusedPause is for how long a connection is not read from when a call on it has
	// been refused: a refusal takes memory, too, and the collector some time to get it
	// back. Calls wait for their turn before, so those of honest peers seldom are.
	refusedPause = 200 * time.Millisecond
	// stuckAfter is how long a write may take of a peer that takes what it is sent. The
	// socket's buffers are full by then.
	stuckAfter = 100 * time.Millisecond
	// maxUndecided is how many calls a connection may have brought that nobody has
	// looked at yet.
	maxUndecided = 16
	// decidePause is the time between two looks whether there are fewer. gRPC answers
	// some calls by itself, those with a malformed name, so after stallPause none are.
	decidePause = time.Millisecond
	// incomplete is how much of one message gRPC has at most before anybody has read
	// it: the largest one, and a window.
	incomplete = guard.MaxMessage + 64<<10
)

var errStalled = errors.New("admit: no room for what comes in")

// transportCredentials know who a peer is, and decide whether it may stay.
type transportCredentials struct {
	credentials.TransportCredentials
	admission *Admission
}

// Credentials returns c with admission behind the handshake.
func (a *Admission) Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	return &transportCredentials{TransportCredentials: c, admission: a}
}

// Clone implements credentials.TransportCredentials.
func (t *transportCredentials) Clone() credentials.TransportCredentials {
	return t.admission.Credentials(t.TransportCredentials.Clone())
}

// ServerHandshake implements credentials.TransportCredentials. gRPC calls it right
// behind Accept, in a goroutine of the connection's own, and closes the connection
// for any error. io.EOF is the one that it keeps out of its log.
func (t *transportCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	spoken, err := t.admission.silents.await(raw)
	if err != nil {
		return nil, nil, err
	}
	leave, ok := t.admission.handshakes.enter(spoken)
	if !ok {
		t.admission.log.Warnf("admit: no room for another handshake, of %s", raw.RemoteAddr())
		return nil, nil, io.EOF
	}
	tls, info, err := t.TransportCredentials.ServerHandshake(spoken)
	leave()
	if err != nil {
		return nil, nil, err
	}
	c, ok := t.admission.room.connect(tls, spiffeID(info))
	if !ok {
		t.admission.log.Warnf("admit: no room for another connection of %q", spiffeID(info))
		return nil, nil, io.EOF
	}
	return c, info, nil
}

// conn is a connection that has been let in. What it holds is released when it is
// closed, by whomever.
type conn struct {
	net.Conn
	room   *room
	holder *holder
	remote address
	close  func() error
	done   chan struct{}

	// writing is since when a write has been under way, in Unix nanoseconds, or 0.
	writing atomic.Int64
	// undecided counts the calls that have been read and neither let in nor refused.
	undecided atomic.Int32
	// refused is set when a call has been: a refusal takes memory, too, and the collector
	// some time to get it back.
	refused atomic.Bool

	// The rest is guarded by the room's lock. Unread counts the calls whose message is
	// not complete, inbox what has been received since there were none such, and charged
	// is what of that they have not for their cost.
	unread, inbox, charged int64
	closed                 bool
}

// address leads from a call to its connection.
type address struct {
	net.Addr
	conn *conn
}

func connOf(ctx context.Context) *conn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(*address); ok {
			return a.conn
		}
	}
	return nil
}

// connect lets a connection in.
func (r *room) connect(tls net.Conn, id string) (*conn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &conn{Conn: tls, room: r, holder: r.holder(id), done: make(chan struct{})}
	if !r.take(c.holder, amount{conns: 1}) {
		return nil, false
	}
	c.remote = address{Addr: tls.RemoteAddr(), conn: c}
	c.close = sync.OnceValue(c.release)
	return c, true
}

func (c *conn) RemoteAddr() net.Addr { return &c.remote }

// Close releases what the connection holds, once.
func (c *conn) Close() error { return c.close() }

func (c *conn) release() error {
	c.room.mu.Lock()
	c.closed = true
	c.room.mu.Unlock()
	close(c.done)
	err := c.Conn.Close() // may wait for the peer
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	c.room.change(c.holder, amount{conns: -1, bytes: -c.charged}, 0)
	c.charged = 0
	return err
}

// Read holds the connection up while its peer does not take what it is sent, since
// answers would pile up, and while there is no room for what it brings.
func (c *conn) Read(p []byte) (int, error) {
	for c.stuck() {
		c.pause(stallPause)
	}
	c.decided()
	if c.refused.CompareAndSwap(true, false) {
		c.pause(refusedPause)
	}
	n, err := c.Conn.Read(p)
	if n > 0 && !c.received(int64(n)) {
		return 0, errStalled
	}
	return n, err
}

// decided returns when calls that were read have had their turn: those to be refused must
// not pile up faster than they are.
func (c *conn) decided() {
	for range stallPause / decidePause {
		if c.undecided.Load() < maxUndecided {
			return
		}
		c.pause(decidePause)
	}
	c.undecided.Store(0)
}

// decide notes that a call has had its turn. One that was given up waiting for counts
// for none.
func (c *conn) decide() {
	for n := c.undecided.Load(); n > 0 && !c.undecided.CompareAndSwap(n, n-1); n = c.undecided.Load() {
	}
}

// stuck tells whether the peer does not take what it is sent.
func (c *conn) stuck() bool {
	since := c.writing.Load()
	select {
	case <-c.done:
		return false
	default:
		return since != 0 && time.Now().UnixNano()-since > int64(stuckAfter)
	}
}

// Write is called by one goroutine of gRPC's, but for the last one.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Store(time.Now().UnixNano())
	defer c.writing.Store(0)
	return c.Conn.Write(p)
}

// received charges bytes to calls whose message is not complete, when there is room.
// It returns false if there is none for too long.
func (c *conn) received(bytes int64) bool {
	for range stallTimeout / stallPause {
		if c.charge(bytes) {
			return true
		}
		c.pause(stallPause)
	}
	return false
}

// pause waits a while, but not for what has gone.
func (c *conn) pause(d time.Duration) {
	select {
	case <-c.done:
	case <-time.After(d):
	}
}

// charge returns true if what was received is charged, or need not be.
func (c *conn) charge(bytes int64) bool {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if c.unread == 0 || c.closed {
		return true
	}
	before := c.inbox
	c.inbox = min(c.inbox+bytes, c.unread*incomplete)
	more := c.due() - c.charged
	if !c.room.take(c.holder, amount{bytes: more}) {
		c.inbox = before
		return false
	}
	c.charged += more
	return true
}

// due is what there is to charge for what was received.
func (c *conn) due() int64 { return max(0, c.inbox-c.unread*usualMessage) }

// complete takes what was received for a call out of the inbox. What came around it,
// headers most of all, stays there while other messages are not complete, but no more
// than those can have. The caller holds the room's lock.
func (c *conn) complete(bytes int64) {
	c.unread--
	c.inbox = min(max(0, c.inbox-bytes), c.unread*incomplete)
	if c.closed {
		return
	}
	more := c.due() - c.charged
	c.room.change(c.holder, amount{bytes: more}, 0)
	c.charged += more
}

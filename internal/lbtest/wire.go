package lbtest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Wire is a network in memory, for tests in a bubble of fake time, where real
// sockets would make the clock stand still. Its places misbehave like the
// balancers of Relay do.
type Wire struct {
	mu     sync.Mutex
	places map[string]*place
}

type place struct {
	// All fields are guarded by the wire's lock.
	listener  *memListener
	refuse    bool
	blackhole bool
	hang      bool
	idle      time.Duration
	lag       time.Duration
	dials     int
	conns     map[*wireConn]struct{}
}

// NewWire makes a network without places.
func NewWire() *Wire { return &Wire{places: make(map[string]*place)} }

func (w *Wire) at(addr string) *place {
	p, ok := w.places[addr]
	if !ok {
		p = &place{conns: make(map[*wireConn]struct{})}
		w.places[addr] = p
	}
	return p
}

// Listen opens a place, again if it was closed before.
func (w *Wire) Listen(addr string) net.Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := newListener(addr)
	w.at(addr).listener = l
	return l
}

// Dial connects to a place. It has the signature of a gRPC dialer.
func (w *Wire) Dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	p := w.at(addr)
	p.dials++
	l, refuse, hang := p.listener, p.refuse, p.hang
	w.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, fmt.Errorf("dial %s: %w", addr, ctx.Err())
	}
	if l == nil || refuse {
		return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
	}
	raw, err := l.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	c := &wireConn{memConn: raw, wire: w, place: p}
	w.mu.Lock()
	defer w.mu.Unlock()
	raw.setLag(p.lag)
	p.conns[c] = struct{}{}
	c.touch()
	return c, nil
}

// Cut closes every connection to the place and returns how many there were.
func (w *Wire) Cut(addr string) int {
	w.mu.Lock()
	conns := make([]*wireConn, 0, len(w.at(addr).conns))
	for c := range w.at(addr).conns {
		conns = append(conns, c)
	}
	w.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	return len(conns)
}

// Refuse makes the place refuse new connections, or take them again.
func (w *Wire) Refuse(addr string, refuse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(addr).refuse = refuse
}

// Blackhole swallows what goes to and from the place, sockets staying open, or
// stops doing so. A connection that has lost bytes to it stays dead: what was
// swallowed does not come back.
func (w *Wire) Blackhole(addr string, swallow bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(addr).blackhole = swallow
}

// Hang lets attempts to connect to the place wait for an answer that never comes,
// as an address without a machine does, or has them answered again.
func (w *Wire) Hang(addr string, hang bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(addr).hang = hang
}

// SetIdle closes connections to the place that have carried nothing for d. 0
// lets them be.
func (w *Wire) SetIdle(addr string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(addr).idle = d
	for c := range w.at(addr).conns {
		c.touch()
	}
}

// SetLag has what goes to and from the place arrive d later, in the order in which it
// was sent. Dialling takes no longer for it.
func (w *Wire) SetLag(addr string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(addr).lag = d
	for c := range w.at(addr).conns {
		c.setLag(d)
	}
}

// Dials returns how often the place was dialled, refused attempts included.
func (w *Wire) Dials(addr string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at(addr).dials
}

// Open returns how many connections to the place there are.
func (w *Wire) Open(addr string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.at(addr).conns)
}

type wireConn struct {
	*memConn
	wire  *Wire
	place *place
	// timer cuts a silent connection. Guarded by the wire's lock.
	timer *time.Timer
	// dead is set once bytes were lost. Guarded by the wire's lock.
	dead bool
}

// touch notes payload. The caller holds the wire's lock.
func (c *wireConn) touch() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if _, open := c.place.conns[c]; open && c.place.idle > 0 {
		c.timer = time.AfterFunc(c.place.idle, func() { _ = c.Close() })
	}
}

// payload notes that bytes go through, and tells whether they arrive.
func (c *wireConn) payload() bool {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.touch()
	c.dead = c.dead || c.place.blackhole
	return !c.dead
}

func (c *wireConn) Read(b []byte) (int, error) {
	for {
		n, err := c.memConn.Read(b)
		if err != nil || c.payload() {
			return n, err
		}
	}
}

func (c *wireConn) Write(b []byte) (int, error) {
	if !c.payload() {
		return len(b), nil
	}
	return c.memConn.Write(b)
}

func (c *wireConn) Close() error {
	c.wire.mu.Lock()
	delete(c.place.conns, c)
	if c.timer != nil {
		c.timer.Stop()
	}
	c.wire.mu.Unlock()
	return c.memConn.Close()
}

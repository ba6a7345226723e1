// Package lbtest is a balancer that misbehaves, for tests and for the lab: a
// TCP relay that cuts, refuses and swallows on request.
//
// What it promises: bytes pass unchanged and in order until a fault is asked
// for; a setting takes effect on open connections at once; every cut is
// counted and reported exactly once; callbacks run without a lock held, so
// they may call back into the relay (except Close, which waits for them);
// Close returns when every goroutine of the relay has ended.
package lbtest

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds a dial to the target. Targets are on loopback or in the
// same test: one that has not answered by then never will.
const dialTimeout = 5 * time.Second

// Option changes a setting before the relay starts to accept.
type Option func(*Relay)

// WithIdle is SetIdle from the first connection on.
func WithIdle(d time.Duration) Option { return func(r *Relay) { r.SetIdle(d) } }

// WithOnCut calls f with the reason of every cut, once per connection and right
// before its sockets are closed: what the cut causes comes after the call.
func WithOnCut(f func(reason string)) Option { return func(r *Relay) { r.onCut = f } }

// WithOnAccept calls f for every accepted connection, before a byte passes.
func WithOnAccept(f func()) Option { return func(r *Relay) { r.onAccept = f } }

// Stats counts what happened since Listen.
type Stats struct {
	Accepted int64 // connections accepted, refused ones included
	Cuts     int64 // connections ended by the relay: idle, or CutAll
	Open     int   // connections open now
	// Lost counts the open connections that lost bytes, so that nothing comes
	// through them any more, and that their client still takes for whole.
	Lost int
}

// Way is a direction through the relay.
type Way int

const (
	// Upwards is from the client to the target.
	Upwards Way = iota
	// Downwards is from the target to the client.
	Downwards

	ways = 2
)

// Relay forwards TCP connections to one target.
type Relay struct {
	listener net.Listener
	onCut    func(reason string) // not changed after Listen
	onAccept func()              // not changed after Listen
	wg       sync.WaitGroup

	// mu guards what follows.
	mu        sync.Mutex
	target    string
	idle      time.Duration
	lag       time.Duration
	refuse    bool
	blackhole [ways]bool
	changed   chan struct{} // closed and replaced when a setting changes
	closed    bool
	pairs     map[*pair]struct{}
	accepted  int64
	cuts      int64
}

// Listen accepts TCP on listenAddr ("127.0.0.1:0" takes a free port) and
// forwards to target, which is dialled once per accepted connection.
func Listen(listenAddr, target string, opts ...Option) (*Relay, error) {
	r := &Relay{
		target:  target,
		changed: make(chan struct{}),
		pairs:   make(map[*pair]struct{}),
	}
	for _, opt := range opts {
		opt(r)
	}
	listener, err := net.Listen("tcp", listenAddr)
	if err != nil {
		return nil, fmt.Errorf("lbtest: %w", err)
	}
	r.listener = listener
	r.wg.Go(r.acceptLoop)
	return r, nil
}

// Addr is the address to connect to, as host:port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// SetTarget sends connections accepted from now on to addr.
func (r *Relay) SetTarget(addr string) { r.set(func() { r.target = addr }) }

// SetIdle cuts a connection that has carried no payload in either direction
// for d, with a FIN to both sides as AWS's Classic ELB does. TCP keepalives
// carry none and do not count. 0 turns it off. A limit that has already passed
// on an open connection cuts it at once.
func (r *Relay) SetIdle(d time.Duration) { r.set(func() { r.idle = d }) }

// SetLag has payload, and the end of a side, arrive d later in either direction, in
// the order in which it was sent. What is on its way already is not held up; a cut
// loses it.
func (r *Relay) SetLag(d time.Duration) { r.set(func() { r.lag = d }) }

// SetRefuse resets new connections right after they are accepted. The listener
// stays, so that its port cannot be lost to someone else meanwhile; open
// connections go on.
func (r *Relay) SetRefuse(on bool) { r.set(func() { r.refuse = on }) }

// SetBlackhole swallows payload both ways and keeps the sockets, as a device
// that forgot the flow and tells nobody. New connections are accepted and
// swallowed too, idle limits do not apply, and the end of one side is kept
// from the other. A connection that lost bytes stays swallowed when it is
// turned off, for its stream can no longer be whole; CutAll ends it.
func (r *Relay) SetBlackhole(on bool) { r.set(func() { r.blackhole = [ways]bool{on, on} }) }

// SetBlackholeWay is SetBlackhole for one direction; the other one passes, on
// connections old and new.
func (r *Relay) SetBlackholeWay(way Way, on bool) { r.set(func() { r.blackhole[way] = on }) }

// CutAll ends every open connection with a FIN to both sides and returns how
// many those were.
func (r *Relay) CutAll() int { return r.cutAll("outright", false) }

// ResetAll is CutAll with a RST instead of the FIN.
func (r *Relay) ResetAll() int { return r.cutAll("reset", true) }

func (r *Relay) cutAll(reason string, rst bool) int {
	r.mu.Lock()
	pairs := make([]*pair, 0, len(r.pairs))
	for p := range r.pairs {
		pairs = append(pairs, p)
	}
	r.mu.Unlock()

	n := 0
	for _, p := range pairs {
		if r.cut(p, reason, rst) {
			n++
		}
	}
	return n
}

// Stats returns the counts as of now.
func (r *Relay) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := Stats{Accepted: r.accepted, Cuts: r.cuts, Open: len(r.pairs)}
	for p := range r.pairs {
		if p.lossy() && !p.left.Load() {
			stats.Lost++
		}
	}
	return stats
}

// Close stops accepting, closes every connection (which counts as no cut) and
// waits for the relay's goroutines. A second Close returns nil.
func (r *Relay) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	pairs := make([]*pair, 0, len(r.pairs))
	for p := range r.pairs {
		pairs = append(pairs, p)
	}
	r.mu.Unlock()

	err := r.listener.Close()
	for _, p := range pairs {
		p.end()
	}
	r.wg.Wait()
	if err != nil {
		return fmt.Errorf("lbtest: %w", err)
	}
	return nil
}

func (r *Relay) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// cut counts the cut, tells of it and ends p. It returns false if p had ended.
func (r *Relay) cut(p *pair, reason string, rst bool) bool {
	up, first := p.claimEnd()
	if !first {
		return false
	}
	r.mu.Lock()
	r.cuts++
	r.mu.Unlock()
	if r.onCut != nil {
		r.onCut(reason)
	}
	if rst {
		linger(p.down)
		linger(up)
	}
	p.closeSockets(up)
	return true
}

func (r *Relay) acceptLoop() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // closed: a loopback listener has no other lasting error
		}
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			_ = conn.Close()
			return
		}
		r.accepted++
		refuse, target, blackhole := r.refuse, r.target, r.blackhole
		p := newPair(conn)
		if !refuse {
			r.pairs[p] = struct{}{}
		}
		r.mu.Unlock()

		if r.onAccept != nil {
			r.onAccept()
		}
		if refuse {
			reset(conn)
			continue
		}
		r.wg.Go(func() {
			defer r.forget(p)
			r.serve(p, target, blackhole == [ways]bool{true, true})
		})
	}
}

func (r *Relay) forget(p *pair) {
	p.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, p)
}

// reset closes with a RST, which is what a refusal looks like to a client that
// was already accepted.
func reset(conn net.Conn) {
	linger(conn)
	_ = conn.Close()
}

// linger makes the Close that follows send a RST.
func linger(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

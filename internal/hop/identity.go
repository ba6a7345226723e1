package hop

import (
	"context"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Identity is what a connection is made with. The certificates of both sides
// bound its life: neighbours refuse a Request whose token is not signed by the
// certificate of the connection that carries it, and a token's expiry is capped
// by the peer's certificate as it was at the handshake.
type Identity interface {
	// Current names the certificate in use, differently after each rotation.
	Current() (name string, notAfter time.Time)
	// Changed returns a channel that is closed at the next rotation.
	Changed() <-chan struct{}
}

const (
	// renewFloor is the shortest life of a connection for the sake of its
	// certificates: with very short-lived ones a handshake must not chase the
	// other.
	renewFloor = 5 * time.Second
	// retireAfter is how long calls on a connection that has been replaced may
	// still take: as long as the SDK gives a caller's try.
	retireAfter = 15 * time.Second
)

// follow renews the hops when the identity changes.
func (p *Pool) follow() {
	for {
		changed := p.opts.Identity.Changed()
		for _, c := range p.connections() {
			if c.stale() {
				p.renew(c, "own certificate has changed")
			}
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *Pool) connections() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := make([]*conn, 0, len(p.hops))
	for _, h := range p.hops {
		conns = append(conns, h.conn.Load())
	}
	return conns
}

// stale tells whether the connection was made with an identity that has changed.
func (c *conn) stale() bool {
	if c.pool.opts.Identity == nil {
		return false
	}
	made := c.identity.Load()
	if made == nil {
		return false // not connected yet: the handshake takes what is current
	}
	name, _ := c.pool.opts.Identity.Current()
	return *made != name
}

// handshaken notes what the connection was made with.
func (c *conn) handshaken() {
	c.bounded.Store(false)
	if c.pool.opts.Identity == nil {
		return
	}
	name, _ := c.pool.opts.Identity.Current()
	c.identity.Store(&name)
}

// bound arms the end of a connection's life from the certificates of both sides.
// The peer's is known from the first call.
func (c *conn) bound(p *peer.Peer) {
	if c.pool.opts.Identity == nil || !c.bounded.CompareAndSwap(false, true) {
		return
	}
	_, end := c.pool.opts.Identity.Current()
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
		if theirs := info.State.PeerCertificates[0].NotAfter; theirs.Before(end) {
			end = theirs
		}
	}
	life := lifeOf(time.Until(end), c.pool.opts.TokenLifetime)
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.end != nil {
		c.end.Stop()
	}
	if !c.pool.done {
		c.end = time.AfterFunc(life, func() { c.pool.renew(c, "a certificate of its handshake comes to its end") })
	}
}

// lifeOf is how long a connection is used: until what is left of its
// certificates is less than the longest token, but half of their time at least,
// where they are short-lived.
func lifeOf(left, token time.Duration) time.Duration {
	return max(left-token, left/2, renewFloor)
}

// renew puts a new connection in the place of one that is still good, and lets
// the old one go when the new one is up and its last call has ended. Monitor
// streams on it are resumed on the new one.
func (p *Pool) renew(old *conn, why string) {
	p.mu.Lock()
	if p.done || old.hop.conn.Load() != old || p.hops[old.hop.target] != old.hop || old.hop.users.Load() == 0 {
		p.mu.Unlock()
		return
	}
	err := p.connect(old.hop)
	p.mu.Unlock()
	if err != nil {
		old.hop.log.Errorf("renew: %v", err)
		return
	}
	old.hop.log.Infof("renewing the connection: %s", why)
	p.background(func() { p.retire(old) })
}

func (p *Pool) retire(old *conn) {
	ctx, cancel := context.WithTimeout(p.ctx, retireAfter)
	defer cancel()
	_ = old.hop.conn.Load().await(ctx, retireAfter)
	old.calls.wait(ctx)
	old.close()
}

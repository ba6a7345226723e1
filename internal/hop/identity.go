package hop

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
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
	// lifeShare is the part of what is left after which the next one is looked for,
	// where that is more: nobody may be there to renew it.
	lifeShare = 12
	// retireAfter is how long calls on a connection that has been replaced may
	// still take: as long as the SDK gives a caller's try.
	retireAfter = 15 * time.Second
	// keptMost is how many replaced connections of one hop are kept for the watches
	// on them, one for each renewal. With certificates of an hour that is eight.
	keptMost = 16
)

// follow renews the hops when the identity changes.
func (p *Pool) follow() {
	for {
		changed := p.opts.Identity.Changed()
		for _, c := range p.connections() {
			if c.stale() {
				p.renewNow(c, "own certificate has changed")
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

// dials notes what is current when an attempt at a connection begins.
func (c *conn) dials() {
	if c.pool.opts.Identity == nil {
		return
	}
	name, _ := c.pool.opts.Identity.Current()
	c.dialling.Store(&name)
}

// handshaken notes what the connection was made with.
func (c *conn) handshaken() {
	c.bounded.Store(false)
	if c.pool.opts.Identity == nil {
		return
	}
	name, _ := c.pool.opts.Identity.Current()
	if before := c.dialling.Load(); before != nil && *before != name {
		// Which of the two it was made with cannot be told: it is made again.
		name = uncertain
	}
	c.identity.Store(&name)
}

// uncertain is no name of a certificate.
const uncertain = "?"

// bound arms the end of a connection's life from the peer's certificate, which is known
// from the first call. Our own has no part in it: its rotation is followed, and as long
// as it has none, a new connection is made with the same.
func (c *conn) bound(p *peer.Peer) {
	if c.pool.opts.Identity == nil || p.AuthInfo == nil || !c.bounded.CompareAndSwap(false, true) {
		return
	}
	theirs := certificateOf(p)
	if theirs == nil {
		return
	}
	c.hop.theirs.Store(theirs)
	life := lifeOf(time.Until(theirs.NotAfter), theirs.NotAfter.Sub(theirs.NotBefore), c.pool.opts.TokenLifetime)
	c.endsAt.Store(time.Now().Add(life).UnixNano())
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.end != nil {
		c.end.Stop()
	}
	if !c.pool.done {
		c.end = time.AfterFunc(life, func() { c.pool.renew(c, "a certificate of its handshake comes to its end") })
	}
}

// lifeOf is how long a connection is used: until what is left of the peer's certificate
// is less than the longest token. Where it is short-lived, until half of its time
// is over: that is when it is renewed, and from then on the new one is
// looked for often, since the far side takes a caller's patience off each token.
func lifeOf(left, whole, token time.Duration) time.Duration {
	return max(left-token, left-whole/2, left/lifeShare, renewFloor)
}

// over tells whether the connection's life has ended while nobody used it.
func (c *conn) over() bool {
	end := c.endsAt.Load()
	return end != 0 && time.Now().UnixNano() >= end
}

// renewNow puts a new connection in the place of one that neighbours refuse from
// now on.
func (p *Pool) renewNow(old *conn, why string) {
	if fresh := p.succeed(old); fresh != nil {
		old.hop.log.Infof("renewing the connection: %s", why)
		if !p.background(func() { p.retire(old, fresh) }) {
			old.close()
		}
	}
}

// renew has a new connection made, and puts it in the place of one that is still
// good when it is up. The channel is closed when that is done or given up; those who
// ask meanwhile get the same.
func (p *Pool) renew(old *conn, why string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old.renewal != nil {
		return old.renewal
	}
	over := make(chan struct{})
	if p.done || old.hop.users.Load() == 0 || old.hop.conn.Load() != old {
		close(over)
		return over
	}
	old.renewal = over
	if theirs := old.hop.theirs.Load(); theirs != nil && theirs.Equal(old.hop.renewedFor.Swap(theirs)) {
		// The far side is looked at again and again until it has renewed its own.
		old.hop.log.Debugf("renewing the connection once more: %s", why)
	} else {
		old.hop.log.Infof("renewing the connection: %s", why)
	}
	p.wg.Go(func() {
		defer guard.Recover(p.ctx, "the renewal of a hop")
		fresh := p.successor(old)
		p.mu.Lock()
		old.renewal = nil
		p.mu.Unlock()
		close(over)
		if fresh != nil {
			p.retire(old, fresh)
		}
	})
	return over
}

// successor puts a new connection in the place of the old one when it is up. It
// returns nil if there is no need of one any more.
func (p *Pool) successor(old *conn) *conn {
	fresh, err := p.dial(old.hop)
	if err != nil {
		old.hop.log.Errorf("renew: %v", err)
		return nil
	}
	fresh.cc.Connect()
	if !p.awaitUp(fresh, old) {
		fresh.close()
		return nil
	}
	if !p.install(old, fresh) {
		fresh.close()
		return nil
	}
	return fresh
}

// awaitUp waits until a connection is up, or has been closed, or the one before it is
// not up or not used any more. It returns false once the pool has ended.
func (p *Pool) awaitUp(fresh, old *conn) bool {
	for p.ctx.Err() == nil {
		state := fresh.cc.GetState()
		if state == connectivity.Ready || state == connectivity.Shutdown || old.cc.GetState() != connectivity.Ready || old.hop.users.Load() == 0 {
			return true
		}
		// What the old one does is looked at now and then.
		ctx, cancel := context.WithTimeout(p.ctx, p.opts.DialTimeout)
		fresh.cc.WaitForStateChange(ctx, state)
		cancel()
	}
	return false
}

// succeed makes a connection and puts it in the place of the old one at once. It
// returns nil if the old one is not in use any more.
func (p *Pool) succeed(old *conn) *conn {
	fresh, err := p.dial(old.hop)
	if err != nil {
		old.hop.log.Errorf("renew: %v", err)
		return nil
	}
	if !p.install(old, fresh) {
		fresh.close()
		return nil
	}
	return fresh
}

// install makes fresh the hop's connection if old is it still.
func (p *Pool) install(old, fresh *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || old.hop.conn.Load() != old || p.hops[old.hop.target] != old.hop {
		return false
	}
	old.hop.conn.Store(fresh)
	old.retired.Store(true)
	return true
}

// retire closes a connection that has been replaced, when the new one is up and
// the last call on the old one has ended. Monitor streams on it are resumed on
// the new one.
func (p *Pool) retire(old, fresh *conn) {
	p.awaitUp(fresh, old)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), retireAfter)
	defer cancel()
	defer context.AfterFunc(p.ctx, func() {
		drained := time.NewTimer(drainTimeout) // as long as the pool waits for all
		defer drained.Stop()
		select {
		case <-drained.C:
			cancel()
		case <-ctx.Done():
		}
	})()
	old.calls.wait(ctx)
	p.outlast(old)
	old.close()
}

// outlast waits for the watches on a connection that has been replaced. They hold
// as long as it does: nobody judges a stream by its certificate once it is open, and
// in stock each has a connection of its own, whatever rotates meanwhile.
func (p *Pool) outlast(old *conn) {
	defer context.AfterFunc(p.ctx, old.stop)()
	p.mu.Lock()
	old.hop.kept = append(old.hop.kept, old)
	if len(old.hop.kept) > keptMost {
		old.hop.kept[0].stop()
	}
	p.mu.Unlock()
	old.watches.wait(old.ctx)
	p.mu.Lock()
	old.hop.kept = slices.DeleteFunc(old.hop.kept, func(c *conn) bool { return c == old })
	p.mu.Unlock()
}

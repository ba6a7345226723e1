package lbtest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// bufferSize is that of one direction: enough for a TLS record and more.
const bufferSize = 32 << 10

// pair is one accepted connection and the one to the target behind it.
type pair struct {
	down   net.Conn
	ctx    context.Context // ends with the pair
	cancel context.CancelFunc
	start  time.Time
	last   atomic.Int64      // when payload last came, in ns since start
	lost   [ways]atomic.Bool // bytes were swallowed that way
	left   atomic.Bool       // the client has ended its side

	// mu guards what follows.
	mu    sync.Mutex
	up    net.Conn // nil until dialled, and for ever in a black hole
	ended bool
}

func newPair(down net.Conn) *pair {
	ctx, cancel := context.WithCancel(context.Background())
	return &pair{down: down, ctx: ctx, cancel: cancel, start: time.Now()}
}

// end closes both sides, unless someone else does so already.
func (p *pair) end() {
	if up, first := p.claimEnd(); first {
		p.closeSockets(up)
	}
}

// claimEnd returns true to the one caller that has to close the sockets.
func (p *pair) claimEnd() (up net.Conn, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, false
	}
	p.ended = true
	return p.up, true
}

func (p *pair) closeSockets(up net.Conn) {
	p.cancel()
	_ = p.down.Close()
	if up != nil {
		_ = up.Close()
	}
}

// attach takes up as the other side, or closes it if the pair has ended.
func (p *pair) attach(up net.Conn) bool {
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		_ = up.Close()
		return false
	}
	p.up = up
	p.mu.Unlock()
	return true
}

// lossy says whether bytes were swallowed on some way.
func (p *pair) lossy() bool { return p.lost[Upwards].Load() || p.lost[Downwards].Load() }

func (p *pair) touch()               { p.last.Store(int64(time.Since(p.start))) }
func (p *pair) quiet() time.Duration { return time.Since(p.start) - time.Duration(p.last.Load()) }

// serve runs one pair until it ends.
func (r *Relay) serve(p *pair, target string, blackhole bool) {
	if blackhole {
		p.lost[Upwards].Store(true)
		swallow(p.down)
		p.left.Store(true)
		<-p.ctx.Done() // the client's end is told to nobody either
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	up, err := dialer.DialContext(p.ctx, "tcp", target)
	if err != nil {
		reset(p.down)
		return
	}
	if !p.attach(up) {
		return
	}

	var wg sync.WaitGroup
	wg.Go(func() { r.copy(p, Upwards, up, p.down) })
	wg.Go(func() { r.copy(p, Downwards, p.down, up) })
	idleDone := make(chan struct{})
	go func() {
		defer close(idleDone)
		r.watchIdle(p)
	}()
	wg.Wait()
	if p.lossy() {
		<-p.ctx.Done()
	}
	p.end()
	<-idleDone
}

// copy moves payload from src to dst. The end of src is handed on as the end of
// that direction only, so that half-closed connections work.
func (r *Relay) copy(p *pair, way Way, dst, src net.Conn) {
	out := newWay(p, dst)
	defer out.wait()
	buf := make([]byte, bufferSize)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.touch()
			if r.swallows(p, way) {
				p.lost[way].Store(true)
			} else if !out.send(buf[:n], r.lagNow()) {
				return
			}
		}
		if err != nil {
			if way == Upwards {
				p.left.Store(true)
			}
			if r.swallows(p, way) {
				p.lost[way].Store(true)
				return
			}
			if p.ctx.Err() != nil {
				return // ours, and it ends both sides in its own way
			}
			out.send(nil, r.lagNow())
			return
		}
	}
}

func (r *Relay) lagNow() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lag
}

func (r *Relay) swallows(p *pair, way Way) bool {
	if p.lost[way].Load() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.blackhole[way]
}

// watchIdle cuts p once it has been quiet for the limit of the moment.
func (r *Relay) watchIdle(p *pair) {
	for {
		r.mu.Lock()
		limit, blackhole, changed := r.idle, r.blackhole != [ways]bool{}, r.changed
		r.mu.Unlock()

		var due <-chan time.Time
		if limit > 0 && !blackhole && !p.lossy() {
			left := limit - p.quiet()
			if left <= 0 {
				r.cut(p, "idle "+limit.String(), false)
				return
			}
			timer := time.NewTimer(left)
			due = timer.C
		}
		select {
		case <-p.ctx.Done():
			return
		case <-changed:
		case <-due:
		}
	}
}

// swallow reads until the other side ends.
func swallow(conn net.Conn) {
	buf := make([]byte, bufferSize)
	for {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}

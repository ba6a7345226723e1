package lbtest

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe is one direction of a connection in memory: what is written waits in a
// buffer until it is read, and until it has been on its way for as long as that
// takes.
//
// It is not the pipe of gRPC's bufconn, because that one arms timers that fire at
// once; under the race detector those crash Go 1.26 now and then in a bubble of
// fake time.
type pipe struct {
	mu     sync.Mutex
	change sync.Cond
	// All following fields are guarded by mu.
	chunks []chunk // in the order of their due times
	size   int     // of all chunks
	lag    time.Duration
	closed bool // by either end
}

// chunk is what arrives at one time; the zero time is at once.
type chunk struct {
	due  time.Time
	data []byte
}

// pipeBuffer is what a direction holds before a writer waits: more than a gRPC
// transport window, so that flow control is gRPC's own.
const pipeBuffer = 256 << 10

func newPipe() *pipe {
	p := new(pipe)
	p.change.L = &p.mu
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if len(p.chunks) == 0 {
			if p.closed {
				return 0, io.EOF
			}
			p.change.Wait()
			continue
		}
		wait := time.Until(p.chunks[0].due)
		if wait <= 0 {
			break
		}
		timer := time.AfterFunc(wait, p.wake)
		p.change.Wait()
		timer.Stop()
	}
	head := &p.chunks[0]
	n := copy(b, head.data)
	head.data = head.data[n:]
	p.size -= n
	if len(head.data) == 0 {
		p.chunks = p.chunks[1:]
	}
	p.change.Broadcast()
	return n, nil
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && p.size >= pipeBuffer {
		p.change.Wait()
	}
	if p.closed {
		return 0, io.ErrClosedPipe
	}
	if len(b) > 0 {
		p.add(b)
	}
	p.change.Broadcast()
	return len(b), nil
}

// add puts b behind what is on its way, however short the lag is by now. The caller
// holds mu.
func (p *pipe) add(b []byte) {
	p.size += len(b)
	var due time.Time
	if p.lag > 0 {
		due = time.Now().Add(p.lag)
	}
	if len(p.chunks) > 0 {
		last := &p.chunks[len(p.chunks)-1]
		if !due.After(last.due) {
			last.data = append(last.data, b...)
			return
		}
	}
	p.chunks = append(p.chunks, chunk{due: due, data: append([]byte(nil), b...)})
}

func (p *pipe) setLag(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lag = d
}

func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change.Broadcast()
}

func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.change.Broadcast()
}

// memConn is one end of a connection.
type memConn struct {
	in, out *pipe
	addr    memAddr
}

func newConns(addr string) (client, server *memConn) {
	up, down := newPipe(), newPipe()
	return &memConn{in: down, out: up, addr: memAddr(addr)}, &memConn{in: up, out: down, addr: memAddr(addr)}
}

func (c *memConn) Read(b []byte) (int, error) { return c.in.read(b) }

func (c *memConn) Write(b []byte) (int, error) { return c.out.write(b) }

func (c *memConn) setLag(d time.Duration) {
	c.in.setLag(d)
	c.out.setLag(d)
}

func (c *memConn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return c.addr }
func (c *memConn) RemoteAddr() net.Addr { return c.addr }

// Deadlines are kept by closing: whoever waits on these connections does so.

func (c *memConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *memConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *memConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

type memAddr string

func (a memAddr) Network() string { return "memory" }
func (a memAddr) String() string  { return string(a) }

// memListener is a place that takes connections.
type memListener struct {
	addr   memAddr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newListener(addr string) *memListener {
	return &memListener{addr: memAddr(addr), conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memListener) Addr() net.Addr { return l.addr }

func (l *memListener) dial(ctx context.Context) (*memConn, error) {
	client, server := newConns(string(l.addr))
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

package lbtest

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// pipe is one direction of a connection in memory: what is written waits in a
// buffer until it is read.
//
// It is not the pipe of gRPC's bufconn, because that one arms timers that fire at
// once; under the race detector those crash Go 1.26 now and then in a bubble of
// fake time.
type pipe struct {
	mu     sync.Mutex
	change sync.Cond
	data   []byte
	closed bool // by either end
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
	for len(p.data) == 0 {
		if p.closed {
			return 0, io.EOF
		}
		p.change.Wait()
	}
	n := copy(b, p.data)
	p.data = p.data[n:]
	p.change.Broadcast()
	return n, nil
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && len(p.data) >= pipeBuffer {
		p.change.Wait()
	}
	if p.closed {
		return 0, io.ErrClosedPipe
	}
	p.data = append(p.data, b...)
	p.change.Broadcast()
	return len(b), nil
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

func (c *memConn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return c.addr }
func (c *memConn) RemoteAddr() net.Addr { return c.addr }

// Deadlines are kept by closing: whoever waits on these connections does so.

func (c *memConn) SetDeadline(time.Time) error      { return nil }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }

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

func (l *memListener) dial(ctx context.Context) (net.Conn, error) {
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

package neighbours

import (
	"fmt"
	"net"
	"sync"
)

// countingListener counts the connections that it accepts, and knows those that are
// still open.
type countingListener struct {
	net.Listener

	// mu guards the following fields.
	mu       sync.Mutex
	accepted int64
	open     map[*countedConn]struct{}
}

func listen(hostPort string) (*countingListener, error) {
	listener, err := net.Listen("tcp", hostPort)
	if err != nil {
		return nil, fmt.Errorf("neighbours: %w", err)
	}
	return &countingListener{Listener: listener, open: make(map[*countedConn]struct{})}, nil
}

// Accept implements net.Listener.
func (l *countingListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &countedConn{Conn: raw, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted++
	l.open[conn] = struct{}{}
	return conn, nil
}

func (l *countingListener) counts() (accepted, open int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted, int64(len(l.open))
}

// cut closes all that is open and returns how many that were.
func (l *countingListener) cut() int {
	l.mu.Lock()
	conns := make([]*countedConn, 0, len(l.open))
	for conn := range l.open {
		conns = append(conns, conn)
	}
	l.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
	return len(conns)
}

type countedConn struct {
	net.Conn
	listener *countingListener
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

package lbtest

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lagging is how many pieces may be on their way in one direction. More of them have
// the sender wait, as a full window does.
const lagging = 1024

// way is one direction of a pair, on which bytes may take a while.
type way struct {
	pair  *pair
	dst   net.Conn
	line  chan piece
	start sync.Once
	wg    sync.WaitGroup
	// onLine counts the pieces that have not arrived.
	onLine atomic.Int64
}

// piece is what was read at one time; without data it is the end of the direction.
type piece struct {
	due  time.Time
	data []byte
}

func newWay(p *pair, dst net.Conn) *way {
	return &way{pair: p, dst: dst, line: make(chan piece, lagging)}
}

// send brings data to the other side, after lag and behind what is on its way. It
// returns false if the pair has ended.
func (w *way) send(data []byte, lag time.Duration) bool {
	if lag == 0 && w.onLine.Load() == 0 {
		return w.deliver(data)
	}
	if data != nil {
		data = append([]byte(nil), data...)
	}
	w.start.Do(func() { w.wg.Go(w.run) })
	w.onLine.Add(1)
	select {
	case w.line <- piece{due: time.Now().Add(lag), data: data}:
		return true
	case <-w.pair.ctx.Done():
		return false
	}
}

func (w *way) run() {
	for {
		var next piece
		select {
		case <-w.pair.ctx.Done():
			return
		case next = <-w.line:
		}
		select {
		case <-w.pair.ctx.Done():
			return
		case <-time.After(time.Until(next.due)):
		}
		if !w.deliver(next.data) || next.data == nil {
			return
		}
		w.onLine.Add(-1)
	}
}

// deliver writes, or ends the direction.
func (w *way) deliver(data []byte) bool {
	if data == nil {
		if tcp, ok := w.dst.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		return true
	}
	if _, err := w.dst.Write(data); err != nil {
		w.pair.end()
		return false
	}
	return true
}

// wait returns when everything has arrived, or the pair has ended.
func (w *way) wait() { w.wg.Wait() }

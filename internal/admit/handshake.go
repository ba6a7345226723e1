package admit

import (
	"net"
	"sync/atomic"
	"time"
)

const (
	// maxHandshakes bounds those under way. Each is a millisecond or two of CPU, so
	// more at a time would not be faster, and some 60 KiB.
	maxHandshakes = 64
	// hurried is what a handshake may take while half of the places are taken:
	// three round trips around the world.
	hurried = time.Second
	// maxQueued bounds the connections that wait for a place. Each is a socket
	// and a goroutine.
	maxQueued = 1024
	// maxWait is how long they do: by then this proxy's own attempt at a connection
	// is over.
	maxWait = 4 * time.Second
)

// handshakes lets few be under way at a time. Strangers who begin theirs and never finish
// keep half of the places for a second at most, so those who do get their turn while
// there are fewer than maxHandshakes strangers a second. Of 200 a second they get it
// once in eight times: what is there stays, what is new has to try again.
type handshakes struct {
	places chan struct{}
	queued atomic.Int64
}

func newHandshakes() *handshakes { return &handshakes{places: make(chan struct{}, maxHandshakes)} }

// enter waits for a place. It returns false if the connection is not to have one.
func (h *handshakes) enter(raw net.Conn) (leave func(), ok bool) {
	defer h.queued.Add(-1)
	if h.queued.Add(1) > maxQueued {
		return nil, false
	}
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case h.places <- struct{}{}:
	case <-timer.C:
		return nil, false
	}
	if len(h.places) > maxHandshakes/2 {
		// gRPC has set a later deadline, and lifts it behind the handshake.
		_ = raw.SetDeadline(time.Now().Add(hurried))
	}
	return func() { <-h.places }, true
}

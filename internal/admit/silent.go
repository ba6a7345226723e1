package admit

import (
	"container/list"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxSilent bounds the connections whose peer has not said anything. Each is a
	// socket and a goroutine.
	maxSilent = 512
	// maxSilence is how long they may stay so: a client speaks first, and at once.
	maxSilence = maxWait
)

// silents has those who connect begin their handshake before they take a place of those
// who are at it, which silence would cost nobody anything to take. When there are too many
// the one that has been silent for longest gives way: of a thousand a second each has half
// a second, and who speaks at once is not held up by any number.
type silents struct {
	// mu guards the list. It is a leaf.
	mu sync.Mutex
	// waiting has a net.Conn each, the oldest first.
	waiting list.List
}

// await returns the connection when its peer has spoken. It takes the first byte to know,
// and gives it back to who reads.
func (s *silents) await(raw net.Conn) (net.Conn, error) {
	defer s.enter(raw)()
	late := time.AfterFunc(maxSilence, func() { _ = raw.Close() })
	defer late.Stop()
	spoken := &spoken{Conn: raw}
	if _, err := io.ReadFull(raw, spoken.first[:]); err != nil {
		return nil, io.EOF
	}
	return spoken, nil
}

// enter has a connection wait, and the oldest go if there are too many.
func (s *silents) enter(raw net.Conn) (leave func()) {
	s.mu.Lock()
	place := s.waiting.PushBack(raw)
	var oldest net.Conn
	if s.waiting.Len() > maxSilent {
		oldest, _ = s.waiting.Remove(s.waiting.Front()).(net.Conn)
	}
	s.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close() // it has nothing to say goodbye to
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting.Remove(place) // nothing, if it had to go
	}
}

// spoken is a connection of which the first byte has been read.
type spoken struct {
	net.Conn
	first [1]byte
	given bool
}

// Read implements net.Conn.
func (s *spoken) Read(p []byte) (int, error) {
	if s.given || len(p) == 0 {
		return s.Conn.Read(p)
	}
	s.given = true
	return copy(p, s.first[:]), nil
}

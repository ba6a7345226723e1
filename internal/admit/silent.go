package admit

import (
	"container/list"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxSilent is how many connections may be there whose peer has not said anything,
	// and mostSilent how many if none of them has been silent for leastSilence: those of
	// a thousand forwarders that come back at once, with little CPU, speak later than
	// they connect. Each is a socket and a goroutine.
	maxSilent    = 512
	mostSilent   = 2048
	leastSilence = 500 * time.Millisecond
	// maxSilence is how long they may stay so at the longest: a client speaks first, and
	// what it says may be lost once.
	maxSilence = 2 * time.Second
)

// silents has those who connect begin their handshake before they take a place of those
// who are at it, which silence would cost nobody anything to take. When there are too many
// the one that has been silent for longest gives way: of four thousand a second each has
// half a second, and who speaks by then is not held up by any number.
type silents struct {
	// mu guards the list. It is a leaf.
	mu sync.Mutex
	// waiting has a silent each, the oldest first.
	waiting list.List
}

// silent is a connection whose peer has not spoken.
type silent struct {
	net.Conn
	since time.Time
	gone  bool // it had to go; guarded by mu of the silents
}

// await returns the connection when its peer has spoken. It takes the first byte to know,
// and gives it back to who reads.
func (s *silents) await(raw net.Conn) (net.Conn, error) {
	leave := s.enter(raw)
	late := time.AfterFunc(maxSilence, func() { _ = raw.Close() })
	defer late.Stop()
	spoken := &spoken{Conn: raw}
	_, err := io.ReadFull(raw, spoken.first[:])
	if mayStay := leave(); err != nil || !mayStay {
		return nil, io.EOF
	}
	return spoken, nil
}

// enter has a connection wait, and the oldest go if there are too many. Leave tells
// whether it may stay.
func (s *silents) enter(raw net.Conn) (leave func() bool) {
	s.mu.Lock()
	entered := &silent{Conn: raw, since: time.Now()}
	place := s.waiting.PushBack(entered)
	oldest, _ := s.waiting.Front().Value.(*silent)
	goes := s.waiting.Len() > mostSilent || s.waiting.Len() > maxSilent && time.Since(oldest.since) >= leastSilence
	if goes {
		s.waiting.Remove(s.waiting.Front())
		oldest.gone = true
	}
	s.mu.Unlock()
	if goes {
		_ = oldest.Close() // there is nothing to say goodbye to
	}
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting.Remove(place) // nothing, if it had to go
		return !entered.gone
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

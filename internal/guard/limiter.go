package guard

import (
	"container/list"
	"fmt"
	"sync"
	"time"
)

const (
	// quiet is how long a line keeps others of its kind from being logged. A
	// forwarder that is refused comes again each second.
	quiet = 10 * time.Second
	// maxKinds bounds the kinds of lines told apart: 500 neighbours that are
	// refused for two reasons each. With the longest names it takes 1 MiB.
	maxKinds = 1024
)

// kind is what lines have in common: a call that failed, of whom and with which
// code, or what an element has to say.
type kind struct{ peer, call, what string }

// others is the kind of all for which there is no place.
var others = kind{what: "lines of other kinds"}

func (k kind) String() string {
	switch {
	case k.call == "":
		return k.what
	case k.peer == "":
		return fmt.Sprintf("%s: %s", k.call, k.what)
	}
	return fmt.Sprintf("%s of %s: %s", k.call, k.peer, k.what)
}

// tally counts the lines of a kind since one was logged.
type tally struct {
	kind  kind
	since time.Time
	more  int
}

// limiter lets one line of a kind through at a time. It has no clock of its own:
// what it has kept back is told of when the next line of any kind comes.
type limiter struct {
	// mu guards all following fields.
	mu    sync.Mutex
	order *list.List // of *tally, the one that began first in front
	kinds map[kind]*list.Element
}

func newLimiter() *limiter {
	return &limiter{order: list.New(), kinds: make(map[kind]*list.Element)}
}

// count takes a line. Repeat is zero for one that is to be logged, with how many
// have been kept back since the last; it is the number of the line otherwise.
// Kept are those of other kinds that are due to be told of.
func (l *limiter) count(k kind) (repeat, more int, kept []tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for {
		first := l.order.Front()
		if first == nil {
			break
		}
		t := l.at(first)
		if now.Sub(t.since) < quiet {
			break
		}
		switch {
		case t.kind == k:
			more = t.more
			l.drop(first)
		case t.more == 0:
			l.drop(first)
		default:
			kept = append(kept, *t)
			t.since, t.more = now, 0
			l.order.MoveToBack(first)
		}
	}
	if _, known := l.kinds[k]; !known && len(l.kinds) >= maxKinds {
		k = others
	}
	if place, known := l.kinds[k]; known {
		t := l.at(place)
		t.more++
		return t.more, 0, kept
	}
	l.kinds[k] = l.order.PushBack(&tally{kind: k, since: now})
	return 0, more, kept
}

func (l *limiter) drop(place *list.Element) {
	l.order.Remove(place)
	delete(l.kinds, l.at(place).kind)
}

func (*limiter) at(place *list.Element) *tally {
	t, _ := place.Value.(*tally)
	return t
}

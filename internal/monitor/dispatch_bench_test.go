package monitor

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// sizes are between what the costs of one leg must not change.
var sizes = []int{100, 10_000}

// crowded is a table with so many legs, each with a subscriber of its own who has got
// its initial state.
type crowded struct {
	*Table
	conns       []*networkservice.Connection
	entries     []*entry
	subscribers []*subscriber
}

func newCrowded(b *testing.B, legs int) *crowded {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	b.Cleanup(wg.Wait)
	b.Cleanup(cancel)
	c := &crowded{Table: NewTable(ctx, &wg)}
	for n := range legs {
		conn := lbtest.Established(n)
		e := c.answer(conn)
		sub := byHand(byID(conn.GetPrevPathSegment().GetId()), "")
		c.join(sub)
		sub.next()
		c.conns, c.entries, c.subscribers = append(c.conns, conn), append(c.entries, e), append(c.subscribers, sub)
	}
	return c
}

// BenchmarkDispatch is one event of one leg: kept, and put into the queue of the one
// subscriber that has asked for it.
func BenchmarkDispatch(b *testing.B) {
	for _, legs := range sizes {
		b.Run(fmt.Sprintf("legs=%d", legs), func(b *testing.B) {
			c := newCrowded(b, legs)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				c.mu.Lock()
				c.tell(c.entries[n], c.conns[n])
				c.unlock()
				if c.subscribers[n].next() == nil {
					b.Fatal("nothing queued")
				}
				n = (n + 1) % legs
			}
		})
	}
}

// BenchmarkJoin is a subscriber that comes, gets its initial state and leaves. One that
// asks for a single leg must not pay for the others; one that asks for all gets all, at
// a price for each that stays the same.
func BenchmarkJoin(b *testing.B) {
	for _, legs := range sizes {
		c := newCrowded(b, legs)
		for _, kind := range []struct {
			name     string
			selector *networkservice.MonitorScopeSelector
			gets     int
		}{
			{"one", byID(c.conns[0].GetPrevPathSegment().GetId()), 1},
			{"all", new(networkservice.MonitorScopeSelector), legs},
		} {
			b.Run(fmt.Sprintf("%s/legs=%d", kind.name, legs), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					sub := byHand(kind.selector, "")
					c.join(sub)
					if event := sub.next(); len(event.ProtoReflect().GetUnknown()) < kind.gets {
						b.Fatal("an initial state without the connections")
					}
					c.part(sub)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*kind.gets), "ns/connection")
			})
		}
	}
}

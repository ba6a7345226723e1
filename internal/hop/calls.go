package hop

import (
	"context"
	"sync"
)

// calls counts what is in flight.
type calls struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n falls to 0; nil while nobody waits
}

func (c *calls) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	if c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// wait returns when nothing is in flight, or ctx ends.
func (c *calls) wait(ctx context.Context) {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return
	}
	if c.none == nil {
		c.none = make(chan struct{})
	}
	none := c.none
	c.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

package monitor

import (
	"context"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/park"
)

// MonitorConnections serves one subscriber until it leaves.
func (t *Table) MonitorConnections(selector *networkservice.MonitorScopeSelector, stream networkservice.MonitorConnection_MonitorConnectionsServer) error {
	ctx := stream.Context()
	sub := newSubscriber(selector, peerOf(ctx), stream.Send)
	if !t.enter(ctx, sub) {
		return errShuttingDown
	}
	if !t.join(sub) {
		sub.leave()
		return errShuttingDown
	}
	if sub.begin() {
		t.pump(sub)
	}
	return park.Wait(ctx, func(ctx context.Context) error {
		defer t.part(sub)
		return sub.wait(ctx, t.ctx)
	})
}

// pump has somebody send what there is for a subscriber. At the end of the process nobody
// does, and the stream ends.
func (t *Table) pump(sub *subscriber) {
	if !t.work.Start("subscriber", sub.pump) {
		sub.leave()
	}
}

// enter has those who do not select one known leg by its id begin one after the other:
// each takes a look at all legs, and a copy of all that it selects. (An id may be that of
// many: whoever requests says what the ids before us are.)
func (t *Table) enter(ctx context.Context, sub *subscriber) bool {
	t.mu.Lock()
	selected := len(t.behind[keyOf(sub.selector)])
	t.mu.Unlock()
	if selected == 1 {
		return true
	}
	select {
	case t.wide <- struct{}{}:
		sub.leave = sync.OnceFunc(func() { <-t.wide })
		return true
	case <-ctx.Done():
	case <-t.ctx.Done():
	}
	return false
}

// join registers the subscriber with what is known in one step, so that no event
// falls between the two.
func (t *Table) join(sub *subscriber) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return false
	}
	for _, e := range t.candidates(sub) {
		sub.known = append(sub.known, known{told: e.told, mayRead: e.mayRead(sub.id)})
	}
	t.subscribers.add(sub)
	return true
}

// candidates returns the legs among which a subscriber's are.
func (t *Table) candidates(sub *subscriber) []*entry {
	if legs, ok := t.behind[keyOf(sub.selector)]; ok {
		return legs
	}
	all := make([]*entry, 0, len(t.legs))
	for _, e := range t.legs {
		if e.told.Set() {
			all = append(all, e)
		}
	}
	return all
}

func (t *Table) part(sub *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscribers.remove(sub)
}

package monitor

import (
	"context"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
)

// A first Request whose answer was lost is sent again, and a stock far side then has
// two connections for our segment: the one that it answered, and a ghost. It would
// hold addresses and an interface of the endpoint until its token runs out. The far
// side shows it to us, so it can be closed along its own path.
//
// Only a leg of which that may be so is looked after: to anybody else another
// connection behind our segment may be what another replica of this proxy has made.

// ghostTimeout is how long the far side may take to close one: as long as the SDK gives
// a caller's try. It is not asked again; its token ends what is left.
const ghostTimeout = 15 * time.Second

// closeGhost closes a connection that the far side shows behind our segment and that
// is not the leg's, once.
func (r *relay) closeGhost(w *word) {
	if !r.haunted || w.state == networkservice.State_DOWN {
		return
	}
	ghost := r.table.ghost(r, w)
	if ghost == nil || ghost.GetNextPathSegment().GetId() == r.ghost {
		return
	}
	r.ghost = ghost.GetNextPathSegment().GetId()
	r.logger().Info("closing what a lost request has left at the far side")
	upstream := r.hop.Retain() // the relay may end before the Close does
	if !r.table.group.Go("closing what a lost request has left", func(ctx context.Context) {
		defer upstream.Release()
		ctx, cancel := context.WithTimeout(ctx, ghostTimeout)
		defer cancel()
		if _, err := networkservice.NewNetworkServiceClient(upstream).Close(ctx, ghost); err != nil {
			r.logger().Warnf("closing what a lost request has left: %v", err)
		}
	}) {
		upstream.Release()
	}
}

// ghost returns what is to be closed, or nil if the far side's connection is the
// leg's own, or may become it.
func (t *Table) ghost(r *relay, w *word) *networkservice.Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := r.entry
	if e.relay != r || e.inFlight || !e.told.Set() {
		return nil
	}
	told := e.told.Unpack()
	far, err := w.decode()
	if err != nil || sameLeg(told, far) {
		return nil
	}
	told.Path = joinPaths(told.GetPath(), far.GetPath())
	return told
}

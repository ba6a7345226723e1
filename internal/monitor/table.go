package monitor

import (
	"context"
	"slices"
	"sync"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/log"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/background"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/warm"
)

// Table is the monitor server of the proxy.
type Table struct {
	ctx   context.Context
	wg    *sync.WaitGroup
	group *background.Group
	// work is for what events take, in and out: the thousands who wait for them keep small
	// stacks.
	work   *warm.Pool
	losses *losses
	// wide has a token while somebody who selects widely begins.
	wide chan struct{}

	// mu guards all following fields and what is in them. It is never held
	// across a call to somebody else: subscribers have queues, and others who send.
	mu   sync.Mutex
	legs map[string]*entry
	// behind finds the legs whose path goes through a segment at or before ours.
	behind      map[string][]*entry
	subscribers subscribers
	done        bool
	// said is what the far side has just said that is worth a line. It is logged when
	// mu is free.
	said []remark
}

// remark is a DOWN of a leg, or a word on it that is malformed.
type remark struct {
	id        string
	malformed error
}

var _ networkservice.MonitorConnectionServer = (*Table)(nil)

// NewTable makes a table that lives as long as ctx and counts its goroutines in
// wg.
func NewTable(ctx context.Context, wg *sync.WaitGroup) *Table {
	t := &Table{
		ctx: ctx, wg: wg, group: background.New(ctx, wg), work: warm.New(ctx, wg), wide: make(chan struct{}, 1),
		legs:        make(map[string]*entry),
		behind:      make(map[string][]*entry),
		subscribers: newSubscribers(),
	}
	t.losses = newLosses(t.group, log.FromContext(ctx))
	wg.Go(func() {
		<-ctx.Done()
		t.end()
	})
	return t
}

// unlock gives mu back, and logs what came about under it.
func (t *Table) unlock() {
	said := t.said
	t.said = nil
	t.mu.Unlock()
	for _, what := range said {
		if what.malformed != nil {
			t.logger(what.id).Debugf("malformed word of the far side, left out: %v", what.malformed)
			continue
		}
		t.logger(what.id).Info("down: said by the far side")
	}
}

func (t *Table) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = true
	for _, e := range t.legs {
		e.stopDoubt()
	}
}

// Len returns how many connections are known, and how many subscribers there are.
func (t *Table) Len() (legs, subscribers int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.legs), t.subscribers.len()
}

func (t *Table) limit() int { return backlog + len(t.legs) }

// tell makes conn what the subscribers know. It stays the caller's, who holds mu.
func (t *Table) tell(e *entry, conn *networkservice.Connection) {
	if conn.GetState() == networkservice.State_DOWN {
		e.owed = 0 // nothing is requested behind a DOWN that was told
	}
	t.know(e, conn)
	t.send(networkservice.ConnectionEventType_UPDATE, e, conn)
}

// know takes conn over without an event. The caller holds mu.
func (t *Table) know(e *entry, conn *networkservice.Connection) {
	if ids := segmentsUpTo(conn); !slices.Equal(ids, e.ids) {
		t.unindex(e)
		e.ids = ids
		for _, id := range ids {
			t.behind[id] = append(t.behind[id], e)
		}
	}
	// The far side's report of an answer says the same again: the block of bytes that
	// the leg keeps as well may stay.
	if told := toldOf(conn); !told.Equal(e.told.Message) {
		v, _ := placeOf(conn).look(told.Encoded()) // what has been encoded here is not malformed
		e.told, e.state, e.digest = told, conn.GetState(), v.digest
	}
}

// send queues one event for everyone who has asked for the connection. The caller
// holds mu.
func (t *Table) send(kind networkservice.ConnectionEventType, e *entry, conn *networkservice.Connection) {
	whole := e.told.event(kind)
	var stripped *networkservice.ConnectionEvent
	t.subscribers.each(conn, func(sub *subscriber) {
		event := whole
		if !e.mayRead(sub.id) {
			if stripped == nil {
				stripped = eventOf(kind, bare(conn))
			}
			event = stripped
		}
		if sub.put(event, e.told.Size(), t.limit()) {
			t.pump(sub)
		}
	})
}

// unindex takes the leg out of the index by segment. The caller holds mu.
func (t *Table) unindex(e *entry) {
	for _, id := range e.ids {
		dropOne(t.behind, id, e)
	}
}

// dropOne takes one out of those under a key, and the key with the last.
func dropOne[T comparable](all map[string][]T, key string, one T) {
	kept := slices.DeleteFunc(all[key], func(other T) bool { return other == one })
	if len(kept) == 0 {
		delete(all, key)
	} else {
		all[key] = kept
	}
}

// segmentsUpTo returns the ids of the path up to our own segment: neighbours ask
// for their own, and those who stand before us are all that do.
func segmentsUpTo(conn *networkservice.Connection) []string {
	var ids []string
	for i, segment := range conn.GetPath().GetPathSegments() {
		if i > int(conn.GetPath().GetIndex()) {
			break
		}
		if id := segment.GetId(); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (t *Table) logger(id string) log.Logger {
	return log.FromContext(t.ctx).WithField("connection", id)
}

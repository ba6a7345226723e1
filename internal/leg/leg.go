// Package leg keeps the life of each connection on this proxy: its Requests one
// after the other, its refresh in place, its expiry, its end.
//
// It stands where the SDK's chains have begin, metadata and timeout. Those three
// cannot keep what this proxy promises: begin swallows the Close of a connection
// that it does not know, which after a restart leaks the far leg until its token
// expires; its event factory sends an uncloned request again, which after one
// failure holds swapped addresses and stripped names; and its Close on reselect
// cannot be told from the client's own. Here all of it is one small state.
//
// What is promised, per connection id:
//
//   - One Request or Close at a time, in the order of arrival. Waiting for one's
//     turn ends with the caller's context; a Close waits for a second and then goes
//     on behind its caller.
//   - A failed first Request leaves nothing behind; a failed refresh leaves the
//     leg exactly as it was.
//   - Close always frees what is kept here, whatever the far side says; one that an
//     element refuses before anything is done (CloseBegun) frees nothing. A Close for
//     an unknown connection is passed on if its path leads on.
//   - A Request runs on behind a caller that gives up, for a while. An abandoned
//     refresh is kept; an abandoned first Request is taken over by whoever asks
//     again, or closed at the far side when its late answer comes (abandon.go).
//   - A Close that was made before the last good Request is ignored.
//   - RESELECT_REQUESTED closes the old leg first; the elements below can tell
//     that Close by Reselecting.
//   - A leg whose previous hop's token runs out, or our own, is closed, one request's
//     time before the end.
//   - Rerequest sends the leg's own copy of the last good request again, with the
//     same ids; the elements below can tell it by InPlace.
//
// The goroutines behind it end with the context of New, and are counted in the
// wait group that it was given.
package leg

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/background"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/packed"
)

// Leg is one connection's life. Its fields are guarded by its turn.
type Leg struct {
	table *Table
	id    string
	// turn holds one token. Whoever took it may touch the leg; those who wait
	// are served in order.
	turn chan struct{}

	established bool
	// gone is set when the leg has left the table: whoever waited for its turn
	// starts over with the leg that came after it.
	gone bool
	// answer is the connection that was answered to the last good request, and
	// request is what else was in that, as it arrived.
	answer  packed.Message[*networkservice.Connection]
	request packed.Message[*networkservice.NetworkServiceRequest]
	// kept is the answer to the current request as an element below has it already.
	kept packed.Message[*networkservice.Connection]
	// arrived is until when the hop before us was good for by the last good request
	// as it arrived: by its path, that is, and not by its call.
	arrived time.Time
	// answered is the last answer to somebody downstream, if a re-request in place
	// has brought something else since.
	answered packed.Message[*networkservice.Connection]
	// incoming is the request that is under way, as it arrived but for tokens, also
	// when it has failed. When it has not, the elements behind have changed it.
	incoming *networkservice.NetworkServiceRequest
	// caller is who sent it: the peer and the call's metadata, which carry the
	// certificate and the token that the elements below look at.
	caller caller
	// server is the rest of the chain.
	server networkservice.NetworkServiceServer
	// memory is what the elements below remember of the leg: pointers, each of another
	// type, and few.
	memory []any
	// expiry is the timer of the leg's end, armed counts how often it was set or
	// stopped.
	expiry *time.Timer
	armed  int
	// early is how long before its token's end the leg ends.
	early time.Duration

	// interrupt ends a re-request in place: whoever comes from downstream does
	// not wait for one. Guarded by the table's lock.
	interrupt *interrupt
	// waiters counts who waits for the turn, and abandoned is set on a leg whose
	// first Request was answered when its caller had given up. Guarded by the
	// table's lock.
	waiters   int
	abandoned bool
	// behind is the newest Close that goes on behind its caller. Guarded by the
	// table's lock.
	behind *waitingClose
	// origin is under what the table's first has the leg, if it has.
	origin *origin

	// place is what the leg takes of the table's room, if it takes any.
	place Place

	// good counts the good Requests.
	good atomic.Int64
}

// interrupt is one re-request's end.
type interrupt struct{ cancel context.CancelFunc }

// Table holds the legs of one chain.
type Table struct {
	group *background.Group
	room  Room

	// mu guards all following fields.
	mu   sync.Mutex
	legs map[string]*Leg
	// first holds the legs whose first Request is in flight or was abandoned.
	first map[origin]*Leg
}

// New makes a table that lives as long as ctx.
func New(ctx context.Context, wg *sync.WaitGroup) *Table {
	return &Table{group: background.New(ctx, wg), legs: make(map[string]*Leg), first: make(map[origin]*Leg)}
}

// Len returns the number of connections known.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.legs)
}

// enter takes the turn of the leg with that id, which is made if create says
// so. Without a leg it returns nil and no error.
func (t *Table) enter(ctx context.Context, id string, create bool) (*Leg, error) {
	for {
		t.mu.Lock()
		l, ok := t.legs[id]
		if !ok {
			if create {
				// Whoever makes it has its turn: were it to be waited for, a
				// caller that has gone already would leave it behind.
				l = &Leg{table: t, id: id, turn: make(chan struct{}, 1)}
				t.legs[id] = l
			}
			t.mu.Unlock()
			return l, nil
		}
		if l.interrupt != nil {
			l.interrupt.cancel()
		}
		l.waiters++ // no re-request begins from here on
		t.mu.Unlock()
		ok, err := l.waited(ctx)
		if err != nil {
			return nil, err
		}
		if ok {
			return l, nil
		}
	}
}

// take waits for the turn. It returns false if the leg left the table while we
// waited.
func (l *Leg) take(ctx context.Context) (bool, error) {
	l.wait(1)
	return l.waited(ctx)
}

// waited is take for who is counted already.
func (l *Leg) waited(ctx context.Context) (bool, error) {
	ok, err := l.await(ctx)
	l.wait(-1)
	if err != nil {
		l.forsaken()
	}
	return ok, err
}

func (l *Leg) await(ctx context.Context) (bool, error) {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if l.gone {
		l.leave()
		return false, nil
	}
	return true, nil
}

func (l *Leg) wait(n int) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.waiters += n
}

func (l *Leg) leave() { l.turn <- struct{}{} }

// last is a copy of the connection as it was last answered. The caller has the
// turn.
func (l *Leg) last() *networkservice.Connection { return l.answer.Unpack() }

// lastRequest is a copy of the last good request, with the connection that was
// answered. The caller has the turn.
func (l *Leg) lastRequest() *networkservice.NetworkServiceRequest {
	request := l.request.Unpack()
	request.Connection = l.last()
	return request
}

// drop takes the leg out of the table. The caller has the turn.
func (l *Leg) drop() {
	l.gone = true
	l.established = false
	l.stopExpiry()
	l.leavePlace()
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if l.table.legs[l.id] == l {
		delete(l.table.legs, l.id)
	}
	l.forgetOrigin()
}

// forgetOrigin takes the leg out of those that may be asked for again. The caller
// holds the table's lock.
func (l *Leg) forgetOrigin() {
	if l.origin != nil && l.table.first[*l.origin] == l {
		delete(l.table.first, *l.origin)
	}
	l.origin = nil
}

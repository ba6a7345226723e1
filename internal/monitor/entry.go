package monitor

import (
	"context"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/packed"
)

// entry is what the table knows of one leg.
type entry struct {
	// told is what the subscribers have been told last. Of it, state is the state, ids
	// are those that the table finds it by, and digest stands for what the far side had
	// to say.
	told
	state  networkservice.State
	ids    []string
	digest uint64
	// owner is the SPIFFE ID of the previous hop, empty without TLS.
	owner string
	// inFlight is set while a Request of the leg is on its way.
	inFlight bool
	held     []*word
	// letGo is what was held for that Request and told before its answer, and
	// before is what had been told until then.
	letGo  []*word
	before told
	// doubt delivers a DOWN that neither the answer nor a later word explains.
	doubt *time.Timer
	relay *relay
	// closed is set from the Close of the old leg until a Request for the new one
	// is answered.
	closed bool
	// answers counts the Requests that succeeded, answered is when the last did.
	answers  int
	answered time.Time
	// lost is since when the leg's stream is not open, or zero. An answer is as good as
	// a stream.
	lost time.Time
	// owed is the number of the refresh that was answered for the far side and has not
	// been delivered to it, or 0. They are counted by debts.
	owed, debts int
}

// begin notes that a Request of the leg is in flight.
func (t *Table) begin(id string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.legs[id]
	if !ok {
		e = new(entry)
		t.legs[id] = e
	}
	e.inFlight = true
	return e
}

// failed lets go what was held. A leg that had not been there before, or whose
// old one was closed for a new selection, is gone.
func (t *Table) failed(id string, e *entry) {
	t.mu.Lock()
	defer t.unlock()
	e.inFlight = false
	switch {
	case !e.told.Set():
		delete(t.legs, id)
	case e.closed:
		t.remove(id, e)
	default:
		e.stopDoubt()
		t.release(e)
	}
}

// answered tells the answer, and returns it as it is kept. An answer to our own
// re-request is told only if it brings something that the subscribers did not know.
func (t *Table) answered(e *entry, answer *networkservice.Connection, owner string, inPlace bool) (kept packed.Message[*networkservice.Connection]) {
	t.mu.Lock()
	defer t.unlock()
	before := e.told
	e.inFlight, e.closed, e.owed = false, false, 0
	e.owner = owner
	if !e.lost.IsZero() {
		// What was held is from a stream that has ended: what it meant, the
		// next one will tell.
		e.dropDoubt()
		e.lost = time.Time{}
	}
	e.answers++
	e.answered = time.Now()
	if inPlace && before.Set() && same(before.Unpack(), answer) {
		t.know(e, answer)
	} else {
		t.tell(e, answer)
	}
	kept = e.told.Message
	t.settle(e, before, answer)
	return kept
}

// replace puts a new relay in the place of the old one, which is not listened to
// from here on.
func (t *Table) replace(e *entry, r *relay) {
	t.mu.Lock()
	if t.done {
		t.mu.Unlock()
		r.hop.Release()
		return
	}
	old := e.relay
	e.relay = r
	if old != nil {
		e.dropDoubt() // what the old far side said of its own is no word on the new one
	}
	ctx, cancel := context.WithCancel(t.ctx)
	r.cancel = cancel
	t.wg.Go(func() { r.run(ctx) })
	t.mu.Unlock()
	if old != nil {
		old.stop()
	}
}

// unwatch stops the relay before a Close: what the far side says of its own
// ending is not news.
func (t *Table) unwatch(id string) {
	t.mu.Lock()
	e := t.legs[id]
	var old *relay
	if e != nil {
		old, e.relay = e.relay, nil
		e.closed, e.owed = true, 0
		e.dropDoubt()
	}
	t.mu.Unlock()
	if old != nil {
		old.stop()
	}
}

// deleted ends what is known of a connection. One that was not known is told as
// the caller knows it: its subscribers may have joined before a restart.
func (t *Table) deleted(id, closer string, closed *networkservice.Connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.legs[id]; ok && e.told.Set() {
		t.remove(id, e)
		return
	}
	t.send(networkservice.ConnectionEventType_DELETE, &entry{owner: closer, told: toldOf(closed)}, closed)
}

// remove tells the end of a leg and forgets it. The caller holds mu.
func (t *Table) remove(id string, e *entry) {
	delete(t.legs, id)
	t.unindex(e)
	t.send(networkservice.ConnectionEventType_DELETE, e, e.told.Unpack())
}

// opening returns the count of answers at the time a stream is opened.
func (t *Table) opening(r *relay) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.entry.answers
}

// resume takes the leg's part of an initial state on a stream that was opened
// when so many Requests had been answered. It returns false if that is no word
// on the leg as it is.
//
// One that was taken before the last answer changes nothing. One on a stream that
// was opened before it may have been: if it is news, the next stream will tell. By
// the expiries, that may also be so on a stream that was opened after the answer:
// then the far side shows an old state, or its expiries went back. Where such a
// state is news, the far side is to be asked instead.
func (t *Table) resume(r *relay, w *word, answers int) (shown bool) {
	t.mu.Lock()
	defer t.unlock()
	e := r.entry
	if e.relay != r || !e.told.Set() {
		return true // the relay is about to end
	}
	e.answerFor(w)
	if !e.knows(w) {
		told := e.told.Unpack()
		far, err := w.decode()
		if err != nil || !sameLeg(told, far) {
			return false // the Request in flight may be for it: then the next stream shows the leg
		}
		stale := !e.inFlight && e.state != networkservice.State_DOWN && older(told, far)
		early := !e.inFlight && e.answers != answers
		if (stale || early) && fold(told, far, w.state) {
			return false
		}
		if stale {
			return true
		}
	}
	e.lost = time.Time{}
	t.weigh(e, w)
	return true
}

// setLost notes since when the leg's stream is not open. What the far side meant
// by a DOWN in doubt, the next stream will tell.
func (t *Table) setLost(r *relay, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := r.entry; e.relay == r {
		e.lost = since
		if !e.inFlight {
			e.dropDoubt()
		}
	}
}

// catchUp returns when the last Request of the leg was answered, and whether one
// is in flight.
func (t *Table) catchUp(r *relay) (answered time.Time, busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.entry.answered, r.entry.relay == r && r.entry.inFlight
}

// up returns what is known of a leg that is not DOWN, or nil.
func (t *Table) up(r *relay) *networkservice.Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := r.entry; e.relay == r && e.state != networkservice.State_DOWN {
		return e.told.Unpack()
	}
	return nil
}

// lose tells that the leg has not been heard of for longer than its grace.
// It returns false if that is no news.
func (t *Table) lose(r *relay) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := r.entry
	if e.relay != r || !e.told.Set() || e.state == networkservice.State_DOWN {
		return false
	}
	told := e.told.Unpack()
	told.State = networkservice.State_DOWN
	t.tell(e, told)
	return true
}

// relayOf returns what watches the leg at the far side, or nil.
func (t *Table) relayOf(e *entry) *relay {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.relay
}

// ended notes that a relay has ended by itself: the next Request starts another.
func (t *Table) ended(r *relay) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.entry.relay == r {
		r.entry.relay = nil
	}
}

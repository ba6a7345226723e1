package monitor

import (
	"slices"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

const (
	// maxHeld bounds what waits while a Request is in flight. A stock peer says
	// one word or two in that time; from one that says more the oldest go.
	maxHeld = 16
	// doubtFor is how long a DOWN that came in the time of a Request waits for
	// the word that explains it: a second is the longest that a true DOWN is
	// kept back.
	doubtFor = time.Second
)

// hear takes a word that the relay brings. A relay that has been replaced is not
// listened to.
func (t *Table) hear(r *relay, w *word) {
	t.mu.Lock()
	defer t.unlock()
	if e := r.entry; e.relay == r && e.told.Set() {
		t.weigh(e, w)
	}
}

// weigh holds a word or judges it. The caller holds mu.
func (t *Table) weigh(e *entry, w *word) {
	e.answerFor(w)
	switch {
	case e.inFlight:
		t.hold(e, w)
	case e.doubt != nil && w.state == networkservice.State_DOWN:
		// One is waiting already.
	default:
		// A DOWN in doubt came before this word, which says otherwise.
		e.dropDoubt()
		t.judge(e, w)
	}
}

// answerFor takes a far side that asks for a refresh for one that has it, while one is
// owed to it: it has been asked for downstream, and is on its way.
func (e *entry) answerFor(w *word) {
	if e.owed != 0 && w.state == networkservice.State_REFRESH_REQUESTED {
		w.state = networkservice.State_UP
	}
}

// judge tells the subscribers what the word means. One with what callers may not say is
// left out: they would send it back with their next refresh. The caller holds mu.
func (t *Table) judge(e *entry, w *word) {
	if e.knows(w) {
		return // the report of an answer, most often
	}
	conn := e.told.Unpack()
	far, err := w.decode()
	if err == nil && !sameLeg(conn, far) {
		return
	}
	if err == nil && w.state != networkservice.State_DOWN {
		err = guard.CheckConnection(far)
	}
	if err != nil {
		t.said = append(t.said, remark{id: conn.GetId(), malformed: err})
		return
	}
	if !fold(conn, far, w.state) {
		t.know(e, conn)
		return
	}
	if conn.GetState() == networkservice.State_DOWN {
		t.said = append(t.said, remark{id: conn.GetId()})
	}
	t.tell(e, conn)
}

// hold keeps a word for when the Request that is in flight has its answer. A
// DOWN does not wait longer than a moment: a Request may take as long as its
// caller likes. The caller holds mu.
func (t *Table) hold(e *entry, w *word) {
	if len(e.held) == maxHeld {
		e.held = append(e.held[:0], e.held[1:]...)
	}
	e.held = append(e.held, w)
	if w.state == networkservice.State_DOWN {
		t.startDoubt(e)
	} else {
		e.stopDoubt()
	}
}

// release judges what was held, in order, as if it came now. The caller holds mu.
func (t *Table) release(e *entry) {
	held := e.held
	e.held, e.letGo, e.before = nil, nil, told{}
	for _, w := range held {
		t.judge(e, w)
	}
}

// letGo tells what is held for a Request that takes its time. It is kept all the
// same: the answer must not undo what came after it. The caller holds mu.
func (t *Table) letGo(e *entry) {
	before := e.before
	if len(e.letGo) == 0 {
		before = e.told
	}
	words := slices.Concat(e.letGo, e.held)
	t.release(e)
	e.letGo, e.before = words[max(0, len(words)-maxHeld):], before
}

// settle judges what was held against the answer of the Request: what came
// before the far side's own report of that answer is older than it. The caller
// holds mu.
func (t *Table) settle(e *entry, before told, answer *networkservice.Connection) {
	if len(e.letGo) > 0 {
		before = e.before
	}
	held, waiting := slices.Concat(e.letGo, e.held), len(e.held) > 0
	e.held, e.letGo, e.before = nil, nil, told{}
	e.stopDoubt()
	newer := -1
	for i, w := range held {
		if w.state != networkservice.State_DOWN && e.reports(w, answer) {
			newer = i
		}
	}
	// A far side that gives a token again for a while cannot be told by it: the
	// report may be that of the answer before.
	if newer >= 0 && newer < len(held)-1 && before.Set() && sameWord(answer, before.Unpack()) {
		newer = -1
	}
	if newer >= 0 {
		for _, w := range held[newer:] {
			t.judge(e, w)
		}
		return
	}
	// The report is still to come, if the peer makes one. A DOWN as the last
	// word is then older than the answer; but a peer that makes none has just
	// told us that the connection is gone.
	if n := len(held); waiting && held[n-1].state == networkservice.State_DOWN {
		e.held = held[n-1:]
		t.startDoubt(e)
	}
}

// reports tells whether a word is the far side's own report of an answer, as which the
// leg is known by now.
func (e *entry) reports(w *word, answer *networkservice.Connection) bool {
	if e.knows(w) {
		return true
	}
	far, err := w.decode()
	return err == nil && sameWord(answer, far)
}

// startDoubt lets what is held go after a moment. The caller holds mu.
func (t *Table) startDoubt(e *entry) {
	if t.done || e.doubt != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(doubtFor, func() {
		t.mu.Lock()
		defer t.unlock()
		if e.doubt != timer || t.done {
			return
		}
		e.doubt = nil
		if e.inFlight {
			t.letGo(e)
		} else {
			t.release(e)
		}
	})
	e.doubt = timer
}

// dropDoubt forgets a DOWN that waits. Called with mu of the table held.
func (e *entry) dropDoubt() {
	e.stopDoubt()
	e.held, e.letGo, e.before = nil, nil, told{}
}

// stopDoubt is called with mu of the table held.
func (e *entry) stopDoubt() {
	if e.doubt != nil {
		e.doubt.Stop()
		e.doubt = nil
	}
}

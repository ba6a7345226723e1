package hop

import (
	"context"
	"time"
)

// The far side is to have the Requests and Closes of one id in order. A Close that
// is retried behind its caller must not hit the connection that a newer Request has
// made.

// yieldTime is how long a Request lets Closes that have gone out be answered first: as
// long as a Close holds its own caller.
const yieldTime = time.Second

// retry is one Close that may go on behind its caller.
type retry struct {
	// Guarded by the server's lock.
	target string
	// superseded is set when a newer Request, that was good, or a newer Close has
	// used the id at the target: this one is not sent again. pinned is set when a
	// newer Request has used it anywhere: this one must not follow the far side to
	// another target.
	superseded, pinned bool
	// claims and claimedHere count the Requests in flight of which the same will
	// hold if they turn out good.
	claims, claimedHere int
	// sending is the attempt that is under way, if one is.
	sending *sending
}

func (s *server) mayBegin(r *retry, attempt *sending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.superseded || r.claimedHere > 0 {
		return false
	}
	r.sending = attempt
	return true
}

// yield lets Closes of the same id that have gone out be answered first, for a
// moment: the far side is to have the two in order. Those that have not are called
// back.
func (s *server) yield(ctx context.Context, attempts []*sending) {
	timer := time.NewTimer(yieldTime)
	defer timer.Stop()
	for _, attempt := range attempts {
		if !attempt.sent.Load() {
			attempt.cancel()
		}
		select {
		case <-attempt.ended:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// begin notes a Close that begins for the id. Those before it at the same target are
// superseded.
func (s *server) begin(id string, r *retry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old := range s.closing[id] {
		if old.target == r.target {
			old.superseded = true
		}
	}
	if s.closing[id] == nil {
		s.closing[id] = make(map[*retry]struct{}, 1)
	}
	s.closing[id][r] = struct{}{}
}

// claim keeps the Closes of the id from being sent to the target while a newer
// Request is in flight there. A good one supersedes them; after one that failed they
// go on, since what they are to close is still there. It returns those that are
// being sent already.
func (s *server) claim(id, target string) (attempts []*sending, settle func(good bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all, here []*retry
	for r := range s.closing[id] {
		all = append(all, r)
		r.claims++
		if r.target != target {
			continue
		}
		here = append(here, r)
		r.claimedHere++
		if r.sending != nil {
			attempts = append(attempts, r.sending)
		}
	}
	return attempts, func(good bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range all {
			r.claims--
			r.pinned = r.pinned || good
		}
		for _, r := range here {
			r.claimedHere--
			r.superseded = r.superseded || good
		}
	}
}

// claimed tells whether a Request in flight keeps the Close from being sent.
func (s *server) claimed(r *retry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.claimedHere > 0
}

func (s *server) ended(id string, r *retry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.closing[id], r)
	if len(s.closing[id]) == 0 {
		delete(s.closing, id)
	}
}

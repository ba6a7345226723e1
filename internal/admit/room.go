package admit

import "sync"

// What things cost, in bytes of resident memory, measured on the process with the
// collector close to its limit, and rounded up.
const (
	connectionCost = 56 << 10 // TLS, buffers and three goroutines, and its handshake
	streamCost     = 24 << 10 // a subscriber: two goroutines and their stacks
	watchCost      = 72 << 10 // a search in a registry that goes on, with the one upstream
	requestCost    = 48 << 10 // a Request under way, with its calls upstream
	// waitCost is a call that waits for its turn: its stream, and a message of usual
	// size that nobody has read.
	waitCost = 16 << 10
	// A leg takes 35 KiB with its stream downstream and the one upstream, and 43 more
	// with a connection of its own.
	legCost     = 34 << 10
	legConnCost = 42 << 10
	// messageCopies is how often a message's bytes are there, decoded and
	// encoded, while it is handled or kept.
	messageCopies = 4
	// usualMessage is how much of messages a call or a leg has for its cost: eight
	// segments take 4 KiB.
	usualMessage = 8 << 10
	// usualHeaders is the same of a call's headers: a token and a trace are 0.6 KiB.
	usualHeaders = 2 << 10
)

// The parts of the memory limit. What is left is for what is there without any peer,
// and the spread of what things cost.
const (
	wholePart = 0.82 // for both rooms
	legsPart  = 0.80 // the large room
	mostPart  = 0.40 // the small room, where there are few legs
	leastPart = 0.03 // the small room, where there are many
	// refreshPart is beyond the small room, for refreshes.
	refreshPart = 0.03
)

const (
	// factor is how many times what is free a peer may hold of the small room: a
	// single one gets three quarters, five of them leave a thousandth.
	factor = 3
	// beginFactor is that for a call that begins, of half of the room: the rest is for
	// those that wait for their turn meanwhile.
	beginFactor = 1
	// legFactor is that for legs. A remote proxy of stock make is one peer, whatever
	// is behind it, so one may have nearly all.
	legFactor = 16
	// refreshCost is a refresh under way, over a connection of its own.
	refreshCost = connectionCost + streamCost + requestCost
)

// extra is what a message costs beyond what is usual.
func extra(bytes int64) int64 { return messageCopies * max(0, bytes-usualMessage) }

// room counts what is held, by whom.
type room struct {
	whole, legs, most, least, refresh int64

	// mu guards all following fields, and those of holders, places, connections and
	// calls.
	mu sync.Mutex
	// kept is held in the large room, loose in the small one.
	kept, loose int64
	holders     map[string]*holder
}

// amount is some of what a peer can hold.
type amount struct {
	conns, streams, legs int64
	bytes                int64 // of all that is not counted by the piece
}

func (a amount) negative() amount { return amount{-a.conns, -a.streams, -a.legs, -a.bytes} }

func (a amount) plus(b amount) amount {
	return amount{a.conns + b.conns, a.streams + b.streams, a.legs + b.legs, a.bytes + b.bytes}
}

// holder is what one peer holds. It is kept as long as it holds something.
type holder struct {
	id   string
	held amount
	// paid is how many of its connections are its legs', up to one for each. It does
	// not fall when they are closed: whoever lost all of them in a cut gets as many
	// again.
	paid int64
}

func newRoom(limit int64) *room {
	part := func(p float64) int64 { return int64(p * float64(limit)) }
	return &room{
		whole: part(wholePart), legs: part(legsPart), most: part(mostPart), least: part(leastPart), refresh: part(refreshPart),
		holders: make(map[string]*holder),
	}
}

// kept is what h holds in the large room: its legs, with a stream and at most a
// connection each.
func (h *holder) kept() int64 { return h.held.legs*legCost + h.paid*legConnCost }

// loose is what h holds in the small room.
func (h *holder) loose() int64 {
	return max(0, h.held.conns-h.paid)*connectionCost + max(0, h.held.streams-h.held.legs)*streamCost + h.held.bytes
}

// holder returns the one with that id, a new one if it holds nothing. The caller
// holds mu.
func (r *room) holder(id string) *holder {
	if h, ok := r.holders[id]; ok {
		return h
	}
	return &holder{id: id}
}

// take lets h hold so much more if there is room. The caller holds mu.
func (r *room) take(h *holder, a amount) bool { return r.takeUpTo(factor, h, a) }

// takeUpTo does if h then holds no more than so many times what is free. The caller holds
// mu.
func (r *room) takeUpTo(factor int64, h *holder, a amount) bool {
	was := h.loose()
	if a.conns > 0 && h.paid < min(h.held.legs, h.held.conns+a.conns) && r.fits(h, legConnCost) {
		r.change(h, amount{}, 1)
	}
	r.change(h, a, 0)
	loose, small := h.loose(), min(r.most, max(r.least, r.whole-r.kept))
	switch {
	case loose <= was:
	case loose <= factor*(small-r.loose):
	case loose <= min(h.held.legs*refreshCost, r.refresh) && r.kept+r.loose <= r.whole+r.refresh:
	default:
		r.change(h, a.negative(), 0)
		return false
	}
	return true
}

// fits tells whether h may hold so many bytes more in the large room. The caller
// holds mu.
func (r *room) fits(h *holder, bytes int64) bool {
	kept := r.kept + bytes
	return h.kept()+bytes <= legFactor*(r.legs-kept) && kept+r.loose <= r.whole
}

// change has h hold so much more or less, and pays for so many of its connections. The
// caller holds mu.
func (r *room) change(h *holder, a amount, paid int64) {
	kept, loose := h.kept(), h.loose()
	h.held = h.held.plus(a)
	h.paid = min(h.paid+paid, h.held.legs)
	r.kept += h.kept() - kept
	r.loose += h.loose() - loose
	if h.held != (amount{}) {
		r.holders[h.id] = h
	} else if r.holders[h.id] == h {
		delete(r.holders, h.id)
	}
}

// add has the peer with that id hold so much more, without asking.
func (r *room) add(id string, a amount) *holder {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.holder(id)
	r.change(h, a, 0)
	return h
}

func (r *room) release(h *holder, a amount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(h, a.negative(), 0)
}

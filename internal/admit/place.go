package admit

import "context"

// place is a leg's part of the large room.
type place struct {
	room *room
	// The rest is guarded by the room's lock.
	holder *holder
	extra  int64 // of its messages, in the small room
}

// openLeg returns nil if there is no room.
func (r *room) openLeg(id string) *place {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.holder(id)
	cost := int64(legCost)
	if h.held.conns > h.paid {
		cost += legConnCost
	}
	if !r.fits(h, cost) {
		return nil
	}
	r.change(h, amount{legs: 1}, 0)
	return &place{room: r, holder: h}
}

// Keep implements leg.Place. It is never refused: the leg is there. A leg is whose
// Request was the last.
func (p *place) Keep(ctx context.Context, bytes int) {
	id, more := idOf(ctx), extra(int64(bytes))
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.holder.id != id {
		r.change(p.holder, amount{legs: -1, bytes: -p.extra}, 0)
		p.holder, p.extra = r.holder(id), 0
		r.change(p.holder, amount{legs: 1}, 0)
	}
	h, paid := p.holder, int64(0)
	if h.paid < min(h.held.legs, h.held.conns) {
		paid = 1
	}
	r.change(h, amount{bytes: more - p.extra}, paid)
	p.extra = more
}

// Leave implements leg.Place.
func (p *place) Leave() { p.room.release(p.holder, amount{legs: 1, bytes: p.extra}) }

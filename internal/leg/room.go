package leg

import "context"

// Room is what legs take their memory from. The contexts are those of calls, with
// their peers.
type Room interface {
	// OpenLeg returns an error, which the caller gets, if there is no room for
	// another leg.
	OpenLeg(ctx context.Context) (Place, error)
}

// Place is what one leg takes.
type Place interface {
	// Keep notes that the leg is established, and keeps so many bytes of messages.
	Keep(ctx context.Context, bytes int)
	// Leave gives the place back.
	Leave()
}

// In has the legs of the table take a place in a room each. It is called before the
// first Request; without it, or with nil, there is room for any.
func (t *Table) In(room Room) *Table {
	t.room = room
	return t
}

// takePlace takes one for the leg if it has none. The caller has the turn.
func (l *Leg) takePlace(ctx context.Context) (err error) {
	if l.place == nil && l.table.room != nil {
		l.place, err = l.table.room.OpenLeg(ctx)
	}
	return err
}

// fillPlace notes what the leg keeps by now. The caller has the turn.
func (l *Leg) fillPlace(ctx context.Context) {
	if l.place != nil {
		l.place.Keep(ctx, l.answer.Size()+l.request.Size())
	}
}

func (l *Leg) leavePlace() {
	if l.place != nil {
		l.place.Leave()
		l.place = nil
	}
}

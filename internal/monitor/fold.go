package monitor

import (
	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/protobuf/proto"
)

// place is what a leg is recognised by: our own segment, and where on the path it
// stands.
type place struct {
	id, name string
	index    uint32
}

func placeOf(conn *networkservice.Connection) place {
	segment := conn.GetCurrentPathSegment()
	return place{id: segment.GetId(), name: segment.GetName(), index: conn.GetPath().GetIndex()}
}

// sameLeg tells whether the far side's connection is the one that it answered to
// us. It may have another with our id: of a Request whose answer never came, or
// from before it was restarted under another name.
func sameLeg(told, far *networkservice.Connection) bool {
	next := told.GetNextPathSegment()
	i := int(told.GetPath().GetIndex()) + 1
	return next == nil || i >= len(far.GetPath().GetPathSegments()) || far.GetPath().GetPathSegments()[i].GetId() == next.GetId()
}

// fold puts the far side's word into what the subscribers have been told. It
// takes from it what the far side is authoritative for: state, context, and the
// path from the next segment on. News tells whether the subscribers would want
// to know; tokens and expiries may be newer all the same. The word is not
// changed, but what is taken from it becomes part of told.
func fold(told, far *networkservice.Connection, state networkservice.State) (news bool) {
	news = state != told.GetState()
	told.State = state
	if state == networkservice.State_DOWN {
		// What the far side says of a dead connection's context and path is of
		// no use to anyone: its neighbours may have emptied them already.
		return news
	}
	path := joinPaths(told.GetPath(), far.GetPath())
	news = news || !samePath(path, told.GetPath()) || !proto.Equal(told.GetContext(), far.GetContext())
	told.Path, told.Context = path, far.GetContext()
	return news
}

// same compares what is worth an event: state, context, and who is on the path.
// Tokens, expiries and metrics change with every refresh.
func same(a, b *networkservice.Connection) bool {
	return a.GetState() == b.GetState() && proto.Equal(a.GetContext(), b.GetContext()) && samePath(a.GetPath(), b.GetPath())
}

// joinPaths returns our own part of the path with the far side's behind it. It
// shares their segments.
func joinPaths(ours, far *networkservice.Path) *networkservice.Path {
	own := int(ours.GetIndex()) + 1
	joined := &networkservice.Path{Index: ours.GetIndex()}
	joined.PathSegments = append(joined.PathSegments, ours.GetPathSegments()[:min(own, len(ours.GetPathSegments()))]...)
	joined.PathSegments = append(joined.PathSegments, far.GetPathSegments()[min(own, len(far.GetPathSegments())):]...)
	return joined
}

// samePath compares who is on the path.
func samePath(a, b *networkservice.Path) bool {
	if len(a.GetPathSegments()) != len(b.GetPathSegments()) {
		return false
	}
	for i, segment := range a.GetPathSegments() {
		if other := b.GetPathSegments()[i]; segment.GetId() != other.GetId() || segment.GetName() != other.GetName() {
			return false
		}
	}
	return true
}

// sameWord tells whether an event is the far side's own report of an answer: it
// put the token into both.
func sameWord(answer, far *networkservice.Connection) bool {
	next := answer.GetNextPathSegment()
	i := int(answer.GetPath().GetIndex()) + 1
	if next == nil || i >= len(far.GetPath().GetPathSegments()) {
		return false
	}
	segment := far.GetPath().GetPathSegments()[i]
	return segment.GetId() == next.GetId() && segment.GetToken() == next.GetToken() &&
		segment.GetExpires().AsTime().Equal(next.GetExpires().AsTime())
}

// older tells whether an initial state was taken before the last answer: the
// next segment's token runs out earlier. An expiry can stand still or go back
// when a certificate caps it, so this recognises a stale state and no more.
func older(told, far *networkservice.Connection) bool {
	next := told.GetNextPathSegment()
	i := int(told.GetPath().GetIndex()) + 1
	if next.GetExpires() == nil || i >= len(far.GetPath().GetPathSegments()) {
		return false
	}
	expires := far.GetPath().GetPathSegments()[i].GetExpires()
	return expires != nil && expires.AsTime().Before(next.GetExpires().AsTime())
}

package monitor

import "github.com/networkservicemesh/api/pkg/api/networkservice"

// subscribers finds who has asked for a connection without asking everyone.
// Stock neighbours select by one segment id, and only those whose id stands in
// the connection's path can match; whoever selects otherwise is tried each time.
type subscribers struct {
	byID map[string][]*subscriber
	rest map[*subscriber]struct{}
}

func newSubscribers() subscribers {
	return subscribers{
		byID: make(map[string][]*subscriber),
		rest: make(map[*subscriber]struct{}),
	}
}

// keyOf returns the one segment id that a selector asks for, if it is of that
// kind.
func keyOf(selector *networkservice.MonitorScopeSelector) string {
	if segments := selector.GetPathSegments(); len(segments) == 1 {
		return segments[0].GetId()
	}
	return ""
}

func (s subscribers) add(sub *subscriber) {
	key := keyOf(sub.selector)
	if key == "" {
		s.rest[sub] = struct{}{}
		return
	}
	s.byID[key] = append(s.byID[key], sub)
}

func (s subscribers) remove(sub *subscriber) {
	delete(s.rest, sub)
	dropOne(s.byID, keyOf(sub.selector), sub)
}

func (s subscribers) len() int {
	n := len(s.rest)
	for _, subs := range s.byID {
		n += len(subs)
	}
	return n
}

// each calls f for everyone who has asked for the connection.
func (s subscribers) each(conn *networkservice.Connection, f func(*subscriber)) {
	segments := conn.GetPath().GetPathSegments()
	for i, segment := range segments {
		if standsBefore(segments[:i], segment.GetId()) {
			continue // an id that comes twice is still one event
		}
		for _, sub := range s.byID[segment.GetId()] {
			if sub.wants(conn) {
				f(sub)
			}
		}
	}
	for sub := range s.rest {
		if sub.wants(conn) {
			f(sub)
		}
	}
}

func standsBefore(segments []*networkservice.PathSegment, id string) bool {
	for _, segment := range segments {
		if segment.GetId() == id {
			return true
		}
	}
	return false
}

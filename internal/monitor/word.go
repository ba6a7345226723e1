package monitor

import (
	"fmt"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/protobuf/proto"
)

// word is what the far side says of one connection, in an event or an initial state. It
// is kept as it came until somebody needs more of it than whether it is news: most words
// are the far side's own report of an answer.
type word struct {
	// state is what it says of the leg's state.
	state networkservice.State
	// digest stands for what else it may change.
	digest uint64

	raw  []byte
	conn *networkservice.Connection // raw, once it has been decoded
}

// word returns what the far side's connection says of the leg at the place, or nil if it is
// about another.
func (p place) word(kind networkservice.ConnectionEventType, conn []byte) (*word, error) {
	v, err := p.look(conn)
	if err != nil || !v.ours {
		return nil, err
	}
	return &word{state: meant(kind, v.state), digest: v.digest, raw: conn}, nil
}

// decode returns what was said, and what is wrong with it if it is no connection.
func (w *word) decode() (*networkservice.Connection, error) {
	if w.conn != nil {
		return w.conn, nil
	}
	conn := new(networkservice.Connection)
	if err := proto.Unmarshal(w.raw, conn); err != nil {
		return nil, fmt.Errorf("monitor: connection: %w", err)
	}
	w.conn, w.raw = conn, nil
	return conn, nil
}

// meant reads what a word means for the leg. RESELECT_REQUESTED is what the SDK leaves
// in its initial states after a reselect: the connection is up.
func meant(kind networkservice.ConnectionEventType, state networkservice.State) networkservice.State {
	switch {
	case kind == networkservice.ConnectionEventType_DELETE, state == networkservice.State_DOWN:
		return networkservice.State_DOWN
	case state == networkservice.State_REFRESH_REQUESTED:
		return networkservice.State_REFRESH_REQUESTED
	default:
		return networkservice.State_UP
	}
}

// knows tells whether the word is what the subscribers know already.
func (e *entry) knows(w *word) bool { return w.digest == e.digest && w.state == e.state }

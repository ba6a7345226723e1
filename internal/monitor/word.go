package monitor

import (
	"errors"
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

// words returns what the far side says of the leg at the place, or what is wrong with any
// of it: then nothing is taken.
func (p place) words(said heard) (words []*word, err error) {
	for _, conn := range said.conns {
		w, err := p.word(said.kind, conn)
		if err != nil {
			return nil, err
		}
		if w != nil {
			words = append(words, w)
		}
	}
	return words, nil
}

// word returns what a connection says of the leg, or nil if it is about another. Of the
// words that come with every refresh it is found out later, or never, that they cannot be
// decoded. Others end the stream if they cannot: a DOWN is not to be left out.
func (p place) word(kind networkservice.ConnectionEventType, conn []byte) (*word, error) {
	v, err := p.look(conn)
	if errors.Is(err, errUnusual) {
		if conn, err = usual(conn, new(networkservice.Connection)); err != nil {
			return nil, fmt.Errorf("monitor: connection: %w", err)
		}
		v, err = p.look(conn)
	}
	if err != nil || !v.ours {
		return nil, err
	}
	w := &word{state: meant(kind, v.state), digest: v.digest, raw: conn}
	if kind != networkservice.ConnectionEventType_UPDATE || w.state != networkservice.State_UP {
		_, err = w.decode()
	}
	return w, err
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
func (e *entry) knows(w *word) bool {
	return e.part != nil && w.digest == e.digest && w.state == e.state
}

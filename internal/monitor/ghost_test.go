package monitor

import (
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
)

// What the far side has ended itself is not closed: this relay has no hop, and would panic.
func TestGhost_OneThatIsGoneIsLeftAlone(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		conn := ourConn()
		e := table.answer(conn)
		r := &relay{table: table, entry: e, ours: placeOf(conn), haunted: true}
		e.relay = r
		other := func(state networkservice.State) []byte {
			far := farConn()
			far.Path.PathSegments[2].Id, far.State = "another", state
			return encoded(t, far)
		}
		for name, said := range map[string]heard{
			"DELETE":             {kind: deleted, conns: [][]byte{other(networkservice.State_UP)}},
			"an UPDATE, DOWN":    {kind: update, conns: [][]byte{other(networkservice.State_DOWN)}},
			"the leg itself, UP": {kind: update, conns: [][]byte{encoded(t, farConn())}},
		} {
			require.NotPanics(t, func() { require.NoError(t, r.bring(said)) }, name)
		}
		shows, err := r.take(heard{kind: initial, conns: [][]byte{other(networkservice.State_DOWN)}}, 0)
		require.NoError(t, err)
		require.False(t, shows)

		ghost, err := r.ours.word(update, other(networkservice.State_UP))
		require.NoError(t, err)
		require.Equal(t, "another", table.ghost(r, ghost).GetNextPathSegment().GetId(), "one that is UP is closed")
		e.relay = nil // it has no cancel
	})
}

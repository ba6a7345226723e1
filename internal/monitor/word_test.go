package monitor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	initial = networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER
	update  = networkservice.ConnectionEventType_UPDATE
	deleted = networkservice.ConnectionEventType_DELETE
)

// undecodable is the far side's view of the leg in that state, with a name that is no text.
func undecodable(t *testing.T, state networkservice.State) []byte {
	conn := farConn()
	conn.State = state
	name := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "\xff")
	return append(name, encoded(t, conn)...)
}

// A word that is left out must not be a DOWN, and nothing of an event is taken if it has
// one that cannot be.
func TestWord_UndecodableOnesEndTheStreamUnlessTheyAreOfEveryRefresh(t *testing.T) {
	good := encoded(t, farConn())
	for name, c := range map[string]struct {
		kind  networkservice.ConnectionEventType
		state networkservice.State
		fails bool
	}{
		"an UPDATE, UP":                {update, networkservice.State_UP, false},
		"an UPDATE, DOWN":              {update, networkservice.State_DOWN, true},
		"an UPDATE, REFRESH_REQUESTED": {update, networkservice.State_REFRESH_REQUESTED, true},
		"a DELETE":                     {deleted, networkservice.State_UP, true},
		"an initial state":             {initial, networkservice.State_UP, true},
	} {
		words, err := placeOf(ourConn()).words(heard{kind: c.kind, conns: [][]byte{good, undecodable(t, c.state)}})
		if c.fails {
			require.Error(t, err, name)
			require.Empty(t, words, name)
			continue
		}
		require.NoError(t, err, name)
		require.Len(t, words, 2, name)
	}
	words, err := placeOf(ourConn()).words(heard{conns: [][]byte{good, {0x80}}})
	require.ErrorIs(t, err, errEncoding)
	require.Empty(t, words)
}

// watched is our connection, and a subscriber who has got its initial state.
func (t *Table) watched(tt *testing.T) (*entry, *subscriber) {
	e, sub := t.answer(ourConn()), byHand(nil, "")
	require.True(tt, t.join(sub))
	sub.next()
	return e, sub
}

// farWithoutTokens is farConn without what is none: it may be passed on.
func farWithoutTokens() *networkservice.Connection {
	far := farConn()
	for _, segment := range far.GetPath().GetPathSegments() {
		segment.Token = ""
	}
	return far
}

func TestWord_UndecodableUpdateIsLeftOut(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		e, sub := table.watched(t)
		far := farWithoutTokens()
		far.Context.MTU++
		w, err := placeOf(ourConn()).word(update, append(undecodable(t, networkservice.State_UP)[:3:3], encoded(t, far)...))
		require.NoError(t, err)
		table.mu.Lock()
		table.weigh(e, w)
		require.Len(t, table.said, 1, "a line says so")
		table.unlock()
		require.Nil(t, sub.next())
	})
}

// What is there twice means to us what it means to the API's decoder.
func TestWord_UnusualOnesAreAsTheAPIDecodesThem(t *testing.T) {
	entry := func(key string, values ...[]byte) (event []byte) {
		e := protowire.AppendString(protowire.AppendTag(nil, entryKey, protowire.BytesType), key)
		for _, value := range values {
			e = protowire.AppendBytes(protowire.AppendTag(e, entryValue, protowire.BytesType), value)
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, eventConnections, protowire.BytesType), e)
	}
	up, far := encoded(t, farConn()), farConn()
	far.State = networkservice.State_DOWN
	down := encoded(t, far)
	only := func(conn *networkservice.Connection) []byte { return encoded(t, conn) }
	stateDown := only(&networkservice.Connection{State: networkservice.State_DOWN})
	for name, c := range map[string]struct {
		event frame
		want  []networkservice.State
	}{
		"a key twice, the last is UP":   {append(entry("c", down), entry("c", up)...), []networkservice.State{networkservice.State_UP}},
		"a key twice, the last is DOWN": {append(entry("c", up), entry("c", down)...), []networkservice.State{networkservice.State_DOWN}},
		"a value in two parts":          {entry("c", up, stateDown), []networkservice.State{networkservice.State_DOWN}},
		"a key twice, then no value":    {append(entry("c", down), entry("c")...), nil},
		"a path in two parts": {
			entry("c", append(only(&networkservice.Connection{Path: &networkservice.Path{PathSegments: farConn().GetPath().GetPathSegments()[:1]}}),
				only(&networkservice.Connection{
					State: networkservice.State_DOWN,
					Path:  &networkservice.Path{Index: 2, PathSegments: farConn().GetPath().GetPathSegments()[1:]},
				})...)),
			[]networkservice.State{networkservice.State_DOWN},
		},
		"a context twice": {
			entry("c", append(only(&networkservice.Connection{Context: &networkservice.ConnectionContext{MTU: 9}}), up...)),
			[]networkservice.State{networkservice.State_UP},
		},
	} {
		said, err := parse(c.event)
		require.NoError(t, err, name)
		words, err := placeOf(ourConn()).words(said)
		require.NoError(t, err, name)
		var states []networkservice.State
		for _, w := range words {
			states = append(states, w.state)
		}
		require.Equal(t, c.want, states, name)
	}
	_, err := parse(append(entry("\xff", up), entry("\xff", up)...))
	require.Error(t, err, "what that means nobody can say")
}

// While the refresh is owed that the far side asks for, it has been asked for downstream.
func TestWord_AskingForARefreshThatIsOwedIsNoNews(t *testing.T) {
	for name, c := range map[string]struct {
		owed int
		want int
	}{"owed": {1, 0}, "not owed": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			inTable(t, func(t *testing.T, table *Table) {
				e, sub := table.watched(t)
				far := farWithoutTokens()
				far.State = networkservice.State_REFRESH_REQUESTED
				w, err := placeOf(ourConn()).word(update, encoded(t, far))
				require.NoError(t, err)
				table.mu.Lock()
				e.owed = c.owed
				table.weigh(e, w)
				table.unlock()
				require.Len(t, sub.queue, c.want)
			})
		})
	}
}

// What had been told before a slow Request is kept until that has its answer, and no
// longer.
func TestHeld_NothingStays(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		first := answeredWith("a")
		e := table.answer(first)
		table.begin(first.GetId())
		table.mu.Lock()
		table.weigh(e, said("a", networkservice.State_DOWN))
		table.mu.Unlock()
		time.Sleep(2 * doubtFor)
		synctest.Wait()
		table.mu.Lock()
		require.True(t, e.before.Set())
		require.NotEmpty(t, e.letGo)
		table.mu.Unlock()
		table.answered(e, answeredWith("b"), "", false)
		time.Sleep(2 * doubtFor)
		require.False(t, e.before.Set())
		require.Empty(t, e.letGo)
		require.Empty(t, e.held)
	})
}

func TestTold_OneThatCannotBeEncodedIsKnownToNobody(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		conn := ourConn()
		conn.NetworkService = "\xff"
		e := table.answer(conn)
		v, err := placeOf(conn).look(nil)
		require.NoError(t, err)
		require.False(t, e.knows(&word{digest: v.digest}))
	})
}

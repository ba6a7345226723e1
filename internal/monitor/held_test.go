package monitor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// answeredWith is the connection of number 1 with the far side's token in it.
func answeredWith(token string) *networkservice.Connection {
	conn := numbered(1)
	segment := conn.GetPath().GetPathSegments()[2]
	segment.Token, segment.Expires = token, timestamppb.New(time.Unix(2e9, 0))
	return conn
}

// wordOf is what an UPDATE with the connection says of the leg of number 1.
func wordOf(conn *networkservice.Connection) *word {
	raw, err := proto.Marshal(conn)
	if err != nil {
		panic(err)
	}
	w, err := placeOf(numbered(1)).word(networkservice.ConnectionEventType_UPDATE, raw)
	if err != nil || w == nil {
		panic("not about the leg")
	}
	return w
}

// said is the far side's view of such a connection.
func said(token string, state networkservice.State) *word {
	conn := answeredWith(token)
	conn.Id, conn.State, conn.Path.Index = "behind-1", state, 2
	return wordOf(conn)
}

// What the far side said while a Request was in flight is judged against the
// answer, by the token that its own report of it shares with it.
func TestHeld_JudgedAgainstTheAnswer(t *testing.T) {
	up, down := networkservice.State_UP, networkservice.State_DOWN
	for name, c := range map[string]struct {
		held  []*word
		token string
		// states are what the subscriber sees after the first answer: at once, and
		// after a moment of doubt.
		now, later []networkservice.State
	}{
		"the report alone":           {[]*word{said("b", up)}, "b", []networkservice.State{up}, nil},
		"a DOWN behind the report":   {[]*word{said("b", up), said("b", down)}, "b", []networkservice.State{up, down}, nil},
		"a DOWN before the report":   {[]*word{said("a", down), said("b", up)}, "b", []networkservice.State{up}, nil},
		"a DOWN without a report":    {[]*word{said("a", down)}, "b", []networkservice.State{up}, []networkservice.State{down}},
		"a late report, then a DOWN": {[]*word{said("a", up), said("a", down)}, "b", []networkservice.State{up}, []networkservice.State{down}},
		"the same token twice: whose report it is cannot be told": {
			[]*word{said("a", up), said("a", down)}, "a", []networkservice.State{up}, []networkservice.State{down},
		},
		"the same token twice, and the report came last": {
			[]*word{said("a", down), said("a", up)}, "a", []networkservice.State{up}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTable(t, func(t *testing.T, table *Table) {
				first := answeredWith("a")
				table.answered(table.begin(first.GetId()), first, "", false)
				j := join(table, byID("before-1"), 8)
				<-j.events
				seen := func() (states []networkservice.State) {
					for synctest.Wait(); len(j.events) > 0; synctest.Wait() {
						for _, conn := range (<-j.events).GetConnections() {
							states = append(states, conn.GetState())
						}
					}
					return states
				}
				e := table.begin(first.GetId())
				for _, w := range c.held {
					table.mu.Lock()
					table.weigh(e, w)
					table.mu.Unlock()
				}
				table.answered(e, answeredWith(c.token), "", false)
				require.Equal(t, c.now, seen())
				time.Sleep(doubtFor)
				require.Equal(t, c.later, seen())
				j.leave()
				<-j.err
			})
		})
	}
}

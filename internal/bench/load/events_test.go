package load

import (
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
)

func TestEventsAreCountedByWhatTheySay(t *testing.T) {
	conns := func(states ...networkservice.State) map[string]*networkservice.Connection {
		m := make(map[string]*networkservice.Connection)
		for i, state := range states {
			m[string(rune('a'+i))] = &networkservice.Connection{State: state}
		}
		return m
	}
	const (
		initial = networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER
		update  = networkservice.ConnectionEventType_UPDATE
		deleted = networkservice.ConnectionEventType_DELETE
		up      = networkservice.State_UP
		down    = networkservice.State_DOWN
	)
	for name, c := range map[string]struct {
		kind  networkservice.ConnectionEventType
		conns map[string]*networkservice.Connection
		want  Counts
	}{
		"empty initial state":           {initial, nil, Counts{Streams: 1}},
		"initial state, UP":             {initial, conns(up), Counts{Streams: 1, InitialUp: 1}},
		"initial state, DOWN":           {initial, conns(down), Counts{Streams: 1, Others: 1, Downs: 1}},
		"initial state of another, too": {initial, conns(up, up), Counts{Streams: 1, Others: 1}},
		"update, UP":                    {update, conns(up), Counts{Updates: 1}},
		"update, DOWN":                  {update, conns(down), Counts{Others: 1, Downs: 1}},
		"update of nothing":             {update, nil, Counts{Others: 1}},
		"delete":                        {deleted, conns(up), Counts{Others: 1}},
	} {
		var e events
		e.note(&networkservice.ConnectionEvent{Type: c.kind, Connections: c.conns})
		require.Equal(t, c.want, e.counts(), name)
	}
}

func TestIDsHaveToStay(t *testing.T) {
	before := newRequest(1, "outbound").GetConnection()
	require.NoError(t, sameIDs(before, before.Clone()))
	other := before.Clone()
	other.Path.PathSegments[1].Id = "another"
	require.ErrorContains(t, sameIDs(before, other), "segment 1")
	other = before.Clone()
	other.Id = "another"
	require.ErrorContains(t, sameIDs(before, other), "the id")
	other = before.Clone()
	other.Path.PathSegments = other.Path.PathSegments[:2]
	require.ErrorContains(t, sameIDs(before, other), "3 segments, and has 2")
}

func TestRequestsOfTwoLegsShareNoID(t *testing.T) {
	for role, index := range map[string]uint32{"outbound": 2, "inbound": 3} {
		seen := make(map[string]struct{})
		for n := range 3 {
			conn := newRequest(n, neighbours.Role(role)).GetConnection()
			require.Equal(t, index, conn.GetPath().GetIndex(), "%s", role)
			require.Equal(t, conn.GetId(), conn.GetCurrentPathSegment().GetId())
			for _, segment := range conn.GetPath().GetPathSegments() {
				require.NotContains(t, seen, segment.GetId())
				seen[segment.GetId()] = struct{}{}
			}
		}
	}
}

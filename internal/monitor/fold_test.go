package monitor

import (
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ourConn is what the subscribers know of a connection at place 1 of a path of
// three.
func ourConn() *networkservice.Connection {
	return &networkservice.Connection{
		Id:                         "b",
		NetworkServiceEndpointName: "endpoint@cluster2",
		Mechanism:                  &networkservice.Mechanism{Type: "ours"},
		Context:                    &networkservice.ConnectionContext{MTU: 1500},
		State:                      networkservice.State_UP,
		Path: &networkservice.Path{Index: 1, PathSegments: []*networkservice.PathSegment{
			{Name: "A", Id: "a", Token: "ta"}, {Name: "B", Id: "b", Token: "tb"},
			{Name: "C", Id: "c", Token: "tc", Expires: timestamppb.New(time.Unix(1000, 0))},
		}},
	}
}

// farConn is the same connection as the next hop sees it.
func farConn() *networkservice.Connection {
	conn := ourConn()
	conn.Id, conn.Path.Index = "c", 2
	conn.NetworkServiceEndpointName = "endpoint"
	conn.Mechanism.Type = "theirs"
	return conn
}

func TestFold(t *testing.T) {
	for name, c := range map[string]struct {
		told  func(*networkservice.Connection)
		far   func(*networkservice.Connection)
		kind  networkservice.ConnectionEventType
		news  bool
		state networkservice.State
		check func(t *testing.T, next *networkservice.Connection)
	}{
		"the same": {
			news: false, state: networkservice.State_UP,
		},
		"DOWN": {
			far:  func(f *networkservice.Connection) { f.State, f.Context = networkservice.State_DOWN, nil },
			news: true, state: networkservice.State_DOWN,
			check: func(t *testing.T, next *networkservice.Connection) {
				require.EqualValues(t, 1500, next.GetContext().GetMTU(), "a dead connection's context is nobody's news")
			},
		},
		"DELETE": {kind: networkservice.ConnectionEventType_DELETE, news: true, state: networkservice.State_DOWN},
		"DOWN again": {
			told: func(o *networkservice.Connection) { o.State = networkservice.State_DOWN },
			kind: networkservice.ConnectionEventType_DELETE, news: false, state: networkservice.State_DOWN,
		},
		"UP after DOWN": {
			told: func(o *networkservice.Connection) { o.State = networkservice.State_DOWN },
			news: true, state: networkservice.State_UP,
		},
		"RESELECT_REQUESTED": {
			far:  func(f *networkservice.Connection) { f.State = networkservice.State_RESELECT_REQUESTED },
			news: false, state: networkservice.State_UP,
		},
		"REFRESH_REQUESTED": {
			far:  func(f *networkservice.Connection) { f.State = networkservice.State_REFRESH_REQUESTED },
			news: true, state: networkservice.State_REFRESH_REQUESTED,
		},
		"another context": {
			far:  func(f *networkservice.Connection) { f.Context.MTU = 1400 },
			news: true, state: networkservice.State_UP,
			check: func(t *testing.T, next *networkservice.Connection) {
				require.EqualValues(t, 1400, next.GetContext().GetMTU())
			},
		},
		"newer tokens": {
			far: func(f *networkservice.Connection) {
				f.Path.PathSegments[1].Token, f.Path.PathSegments[2].Token = "not theirs to say", "newer"
			},
			news: false, state: networkservice.State_UP,
			check: func(t *testing.T, next *networkservice.Connection) {
				require.Equal(t, "tb", next.GetPath().GetPathSegments()[1].GetToken())
				require.Equal(t, "newer", next.GetPath().GetPathSegments()[2].GetToken(), "taken over without an event")
			},
		},
		"another hop behind the next": {
			far: func(f *networkservice.Connection) {
				f.Path.PathSegments = append(f.Path.PathSegments, &networkservice.PathSegment{Name: "D", Id: "d"})
			},
			news: true, state: networkservice.State_UP,
		},
		"a path that ends with us": {
			far:  func(f *networkservice.Connection) { f.Path.PathSegments = f.Path.PathSegments[:2] },
			news: true, state: networkservice.State_UP,
		},
	} {
		t.Run(name, func(t *testing.T) {
			told, far := ourConn(), farConn()
			if c.told != nil {
				c.told(told)
			}
			if c.far != nil {
				c.far(far)
			}
			said := far.Clone()
			require.Equal(t, c.news, fold(told, far, meant(c.kind, far.GetState())))
			require.Equal(t, c.state, told.GetState())
			require.Equal(t, "ours", told.GetMechanism().GetType())
			require.Equal(t, "endpoint@cluster2", told.GetNetworkServiceEndpointName())
			require.EqualValues(t, 1, told.GetPath().GetIndex())
			require.True(t, proto.Equal(said, far), "what was said is not changed")
			if c.check != nil {
				c.check(t, told)
			}
		})
	}
}

// about tells whether the far side's connection, as it comes, is taken for ours.
func about(t *testing.T, far *networkservice.Connection) bool {
	v, err := placeOf(ourConn()).look(encoded(t, far))
	require.NoError(t, err)
	return v.ours
}

func encoded(t testing.TB, m proto.Message) []byte {
	raw, err := proto.Marshal(m)
	require.NoError(t, err)
	return raw
}

func TestAbout(t *testing.T) {
	require.True(t, about(t, farConn()))
	for name, change := range map[string]func(*networkservice.Connection){
		"another id at our place": func(f *networkservice.Connection) { f.Path.PathSegments[1].Id = "x" },
		"our id, another place": func(f *networkservice.Connection) {
			f.Path.PathSegments = append([]*networkservice.PathSegment{{Id: "0"}}, f.Path.PathSegments...)
		},
		"seen from further away": func(f *networkservice.Connection) { f.Path.Index = 3 },
		"a path too short":       func(f *networkservice.Connection) { f.Path.PathSegments = f.Path.PathSegments[:1] },
		"no path":                func(f *networkservice.Connection) { f.Path = nil },
	} {
		t.Run(name, func(t *testing.T) {
			far := farConn()
			change(far)
			require.False(t, about(t, far))
		})
	}
	ghost := farConn()
	ghost.Path.PathSegments[2].Id = "x"
	require.True(t, about(t, ghost))
	require.False(t, sameLeg(ourConn(), ghost), "another leg with our id")
	require.True(t, sameLeg(ourConn(), farConn()))

	merged := farConn()
	merged.Path.Index = 1
	require.True(t, about(t, merged), "a peer of the same name shares our segment")
}

func TestOlderAndSameWord(t *testing.T) {
	told, far := ourConn(), farConn()
	require.False(t, older(told, far), "equal expiries are not older")
	require.True(t, sameWord(told, far))
	far.Path.PathSegments[2].Expires = timestamppb.New(time.Unix(999, 0))
	require.True(t, older(told, far))
	require.False(t, sameWord(told, far))
	far.Path.PathSegments[2].Expires = nil
	require.False(t, older(told, far), "nothing is known of its age")
	far.Path = nil
	require.False(t, older(told, far))
	require.False(t, sameWord(told, far))
}

// FuzzFold feeds the event differ with whatever a peer may send: it must neither
// panic nor touch what is not the far side's to say.
func FuzzFold(f *testing.F) {
	for _, conn := range []*networkservice.Connection{farConn(), {}, {State: networkservice.State_DOWN}} {
		raw, err := proto.Marshal(conn)
		require.NoError(f, err)
		f.Add(raw, false)
		f.Add(raw, true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, deleted bool) {
		far := new(networkservice.Connection)
		if proto.Unmarshal(raw, far) != nil {
			return
		}
		kind := networkservice.ConnectionEventType_UPDATE
		if deleted {
			kind = networkservice.ConnectionEventType_DELETE
		}
		told := ourConn()
		sameLeg(told, far)
		older(told, far)
		sameWord(told, far)
		next := told.Clone()
		news := fold(next, far, meant(kind, far.GetState()))
		require.Equal(t, told.GetId(), next.GetId())
		require.True(t, proto.Equal(told.GetMechanism(), next.GetMechanism()))
		require.EqualValues(t, 1, next.GetPath().GetIndex())
		for i, segment := range next.GetPath().GetPathSegments()[:2] {
			require.True(t, proto.Equal(told.GetPath().GetPathSegments()[i], segment))
		}
		if news {
			require.False(t, fold(next, far, meant(kind, far.GetState())), "told once: %v", next)
		}
	})
}

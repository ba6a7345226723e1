package admit

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

func as(name string) context.Context {
	id := &url.URL{Scheme: "spiffe", Host: "test", Path: "/" + name}
	return peer.NewContext(context.Background(), &peer.Peer{AuthInfo: credentials.TLSInfo{SPIFFEID: id}})
}

func (r *room) takes(id string, a amount) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.take(r.holder(id), a)
}

// fill takes as much of the small room for a peer as it may have.
func fill(r *room, id string) (held int64) {
	for r.takes(id, amount{bytes: kib}) {
	}
	return r.holder(id).held.bytes
}

// legs establishes as many as a peer may have, each over a connection of its own with
// a stream, and refreshes them over others.
func legs(t *testing.T, r *room, name string, most int) (places []*place) {
	id := idOf(as(name))
	for len(places) < most && r.takes(id, amount{conns: 1}) {
		require.True(t, r.takes(id, amount{bytes: requestCost}))
		p := r.openLeg(id)
		r.add(id, amount{bytes: -requestCost})
		if p == nil {
			r.add(id, amount{conns: -1})
			break
		}
		p.Keep(as(name), 4*kib)
		require.True(t, r.takes(id, amount{streams: 1}))
		places = append(places, p)
	}
	for _, p := range places {
		require.True(t, r.takes(id, amount{conns: 1, streams: 1, bytes: requestCost}), "a refresh")
		p.Keep(as(name), 5*kib)
		r.add(p.holder.id, amount{conns: -1, streams: -1, bytes: -requestCost})
	}
	return places
}

func TestOnePeerMayHaveAThousandLegs(t *testing.T) {
	r := newRoom(100 * mib)
	one := legs(t, r, "one", 5000)
	require.Greater(t, len(one), 1000)
	require.Zero(t, r.loose)
	two := legs(t, r, "two", 5000)
	require.NotEmpty(t, two, "and another one some")
	require.Greater(t, r.kept, int64(75*mib))
	fill(r, "flood")
	fill(r, "two floods")
	require.LessOrEqual(t, r.kept+r.loose, int64((legsPart+leastPart)*100*mib))
	id := idOf(as("one"))
	r.add(id, amount{conns: -500, streams: -500})
	for range 500 {
		require.True(t, r.takes(id, amount{conns: 1}), "who has lost all comes back")
		require.True(t, r.takes(id, amount{streams: 1}))
	}
	require.True(t, r.takes(id, amount{conns: 1, streams: 1, bytes: requestCost}), "and refreshes")
	r.add(id, amount{conns: -1, streams: -1, bytes: -requestCost})

	for _, p := range append(one, two...) {
		p.Leave()
		r.add(p.holder.id, amount{conns: -1, streams: -1})
	}
	require.Zero(t, r.kept)
	for _, id := range []string{"flood", "two floods"} {
		r.add(id, r.holder(id).held.negative())
	}
	require.Zero(t, r.loose)
	require.Empty(t, r.holders)
}

func TestFloodsLeaveRoom(t *testing.T) {
	r := newRoom(100 * mib)
	places := legs(t, r, "neighbour", 100)
	require.InDelta(t, 30*mib, fill(r, "flood"), kib, "three quarters of the small room")
	for i := range 10 {
		fill(r, fmt.Sprint("next", i))
	}
	id := idOf(as("neighbour"))
	for range 20 {
		require.True(t, r.takes(id, amount{conns: 1, streams: 1, bytes: requestCost}))
	}
	require.False(t, r.takes(id, amount{bytes: mib}))
	require.Less(t, r.loose, int64((mostPart+refreshPart)*100*mib))
	require.NotNil(t, r.openLeg("new"), "a flood of the small room is none of the large one")
	require.Len(t, places, 100)
}

func TestLegsOfUnknownSize(t *testing.T) {
	r := newRoom(100 * mib)
	p := r.openLeg("spiffe://test/a")
	p.Keep(as("a"), 100*kib)
	require.EqualValues(t, messageCopies*(100*kib-usualMessage), r.loose)
	p.Keep(as("b"), 50*kib)
	require.Len(t, r.holders, 1, "it is whose Request was the last")
	require.EqualValues(t, messageCopies*(50*kib-usualMessage), r.loose)
	p.Leave()
	require.Zero(t, r.kept)
	require.Zero(t, r.loose)
	require.Empty(t, r.holders)
}

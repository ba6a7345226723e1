package leg_test

import (
	"context"
	"errors"
	"testing"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

// room has places for so many legs, and counts the bytes.
type room struct{ places, bytes int }

var errFull = errors.New("full")

func (r *room) OpenLeg(context.Context) (leg.Place, error) {
	if r.places == 0 {
		return nil, errFull
	}
	r.places--
	return &place{room: r}, nil
}

// place is one of its places.
type place struct {
	room  *room
	bytes int
}

func (p *place) Keep(_ context.Context, bytes int) {
	p.room.bytes += bytes - p.bytes
	p.bytes = bytes
}

func (p *place) Leave() {
	p.room.places++
	p.room.bytes -= p.bytes
}

func TestLegsTakeRoomAndGiveItBack(t *testing.T) {
	r := &room{places: 1}
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, _ *behind) {
		table.In(r)
		conn, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		require.Zero(t, r.places)
		small := r.bytes
		larger := request()
		larger.Connection.Labels = map[string]string{"a": "label"}
		_, err = server.Request(t.Context(), larger)
		require.NoError(t, err, "a refresh needs no other place")
		require.Zero(t, r.places)
		require.Greater(t, r.bytes, small)

		other := request()
		other.Connection.Id = "other"
		_, err = server.Request(t.Context(), other)
		require.ErrorIs(t, err, errFull, "also where its path leads on")
		require.Equal(t, 1, table.Len())

		_, err = server.Close(t.Context(), conn)
		require.NoError(t, err)
		require.Equal(t, room{places: 1}, *r, "it is given back")
	})
}

package leg_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

func TestClose_IsNotHeldByARequestInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
		conn, err := server.Request(t.Context(), request())
		require.NoError(t, err)
		hold := make(chan struct{})
		b.set(func() { b.hold = hold })
		refreshed := make(chan error, 1)
		go func() {
			_, err := server.Request(t.Context(), &networkservice.NetworkServiceRequest{Connection: conn.Clone()})
			refreshed <- err
		}()
		synctest.Wait()

		began := time.Now()
		for range 3 {
			_, err = server.Close(t.Context(), conn.Clone())
			require.NoError(t, err)
		}
		require.Equal(t, 3*time.Second, time.Since(began), "a second each")
		require.Equal(t, []string{"request", "request"}, b.seen(), "one after the other all the same")
		time.Sleep(5 * time.Minute)
		close(hold)
		require.NoError(t, <-refreshed)
		require.Equal(t, []string{"request", "request", "close"}, b.seen(), "once, however often it was asked for")
		require.Zero(t, table.Len())
	})
}

// What the hop before us signed in the path and what it signed for the call may be
// capped by different certificates; a Close may carry either.
func TestClose_OlderThanTheLastRequest(t *testing.T) {
	in := func(minutes int) *timestamppb.Timestamp {
		return timestamppb.New(time.Now().Add(time.Duration(minutes) * time.Minute))
	}
	for name, c := range map[string]struct {
		arrived, answered, closed int // minutes from now, or 0
		older                     bool
	}{
		"signed before both":                      {10, 10, 9, true},
		"as in the path, which ends earlier":      {30, 60, 30, false},
		"as for the call, which ends earlier":     {60, 30, 30, false},
		"signed later, capped as the path was":    {30, 60, 31, false},
		"signed before, where both stand still":   {30, 30, 30, false},
		"the path said nothing, before the call":  {0, 30, 29, true},
		"the path said nothing, as for the call":  {0, 30, 30, false},
		"the Close says nothing":                  {30, 30, 0, false},
		"between the two, so nobody knows":        {30, 60, 45, false},
		"before both, which are far from another": {30, 60, 29, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server networkservice.NetworkServiceServer, table *leg.Table, b *behind) {
				b.lifetime = time.Duration(c.answered) * time.Minute
				r := request()
				if c.arrived != 0 {
					r.Connection.Path.PathSegments[0].Expires = in(c.arrived)
				}
				conn, err := server.Request(t.Context(), r)
				require.NoError(t, err)
				conn.Path.PathSegments[0].Expires = nil
				if c.closed != 0 {
					conn.Path.PathSegments[0].Expires = in(c.closed)
				}
				_, err = server.Close(t.Context(), conn)
				require.NoError(t, err)
				if c.older {
					require.Equal(t, []string{"request"}, b.seen())
					require.Equal(t, 1, table.Len())
				} else {
					require.Equal(t, []string{"request", "close"}, b.seen())
				}
			})
		})
	}
}

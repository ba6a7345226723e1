package monitor

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

func TestWhoSelectsWidelyBeginsAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		table := NewTable(ctx, &wg)
		for n := range 3 {
			conn := lbtest.Established(n)
			conn.Path.PathSegments[0].Id = "shared"
			table.answered(table.begin(conn.GetId()), conn, "", false)
		}
		entered := func(sub *subscriber) chan bool {
			done := make(chan bool, 1)
			go func() { done <- table.enter(t.Context(), sub) && table.join(sub) }()
			synctest.Wait()
			return done
		}
		for name, wide := range map[string]*networkservice.MonitorScopeSelector{
			"all": {}, "an id that nobody knows": byID("none"), "an id that several have": byID("shared"),
		} {
			one, two := byHand(wide, ""), byHand(wide, "")
			require.Len(t, entered(one), 1, name)
			second := entered(two)
			require.Empty(t, second, name)
			narrow := byHand(byID(lbtest.Established(1).GetId()), "")
			require.Len(t, entered(narrow), 1, "%s: who knows which one is not held up", name)
			require.Len(t, received(narrow.next()).GetConnections(), 1)

			one.next()
			synctest.Wait()
			require.Len(t, second, 1, name)
			two.leave() // it has left before it was told anything
			require.Len(t, entered(byHand(wide, "")), 1, name)
			<-table.wide

			gone, leave := context.WithCancel(t.Context())
			leave()
			table.wide <- struct{}{}
			require.False(t, table.enter(gone, byHand(wide, "")), name)
			<-table.wide
		}
	})
}

// The turn is given back when nobody holds what it is for, and always.
func TestTheTurnOfWhoSelectsWidelyIsGivenBack(t *testing.T) {
	for name, send := range map[string]func() error{
		"when it was sent":         func() error { return nil },
		"when it cannot be sent":   func() error { return errUnsent },
		"when the sender panics":   func() error { panic("of the test") },
		"when the table has ended": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(log.WithLog(context.Background(), log.Empty()))
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				table := NewTable(ctx, &wg)
				table.establish(1)
				sub := newSubscriber(nil, "", func(*networkservice.ConnectionEvent) error {
					require.Empty(t, table.wide, "the initial state has been made")
					return send()
				})
				require.True(t, table.enter(t.Context(), sub))
				require.Len(t, table.wide, 1)
				require.True(t, table.join(sub))
				if send == nil {
					cancel()
					wg.Wait()
				}
				require.True(t, sub.begin())
				table.pump(sub)
				synctest.Wait()
				require.Empty(t, table.wide)
			})
		})
	}
}

// One that has left does not have thousands of legs put together for it.
func TestWhoHasLeftIsSentNothing(t *testing.T) {
	inTable(t, func(t *testing.T, table *Table) {
		table.establish(1)
		sub := newSubscriber(nil, "", func(*networkservice.ConnectionEvent) error {
			t.Error("sent")
			return nil
		})
		require.True(t, table.enter(t.Context(), sub))
		require.True(t, table.join(sub))
		require.True(t, sub.begin())
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorContains(t, sub.wait(gone, table.ctx), "canceled")
		require.Len(t, table.wide, 1, "it is for who holds what is known of the legs")
		table.pump(sub)
		synctest.Wait()
		require.Empty(t, table.wide)
		require.Nil(t, sub.known)
	})
}

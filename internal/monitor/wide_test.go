package monitor

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
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

package background_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/background"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(log.WithLog(t.Context(), log.Empty()))
		g := background.New(ctx, &wg)
		before := guard.Panics()
		require.True(t, g.Go("test", func(context.Context) { panic("of the test") }))
		synctest.Wait()
		require.Equal(t, before+1, guard.Panics())

		over := false
		require.True(t, g.Go("test", func(ctx context.Context) { <-ctx.Done(); over = true }))
		synctest.Wait()
		require.False(t, over)
		cancel()
		wg.Wait()
		require.True(t, over, "it has been waited for")
		require.False(t, g.Go("test", func(context.Context) { t.Error("behind the end") }))
		synctest.Wait()
	})
}

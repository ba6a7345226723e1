package monitor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/background"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/logtest"
)

func TestLosses_AreToldOnceForAHop(t *testing.T) {
	cut := errors.New("cut")
	for name, c := range map[string]struct {
		do   func(l *losses)
		want []string
	}{
		"one": {
			func(l *losses) {
				l.begin("a", "c-1", 30*time.Second, cut)
				time.Sleep(300 * time.Millisecond)
				l.end("a", true, 300*time.Millisecond)
			},
			[]string{
				"INFO [hop:a] monitor stream of c-1 lost, resuming within 30s: cut",
				"INFO [hop:a] monitor streams: 1 of 1 resumed, within 300ms",
			},
		},
		"a thousand, of which one is given up": {
			func(l *losses) {
				for n := range 1000 {
					l.begin("a", fmt.Sprintf("c-%d", n), 30*time.Second, cut)
				}
				time.Sleep(2 * time.Second)
				for range 999 {
					l.end("a", true, 1500*time.Millisecond)
				}
				time.Sleep(30 * time.Second)
				l.end("a", false, 32*time.Second)
			},
			[]string{
				"INFO [hop:a] monitor stream of c-0 lost, resuming within 30s: cut",
				"INFO [hop:a] 1000 monitor streams lost",
				"INFO [hop:a] monitor streams: 999 of 1000 resumed, within 1.5s",
			},
		},
		"two hops": {
			func(l *losses) {
				l.begin("a", "c-1", time.Second, cut)
				l.begin("b", "c-2", time.Second, cut)
				synctest.Wait()
				l.end("b", true, 0)
				synctest.Wait()
				l.end("a", false, 0)
			},
			[]string{
				"INFO [hop:a] monitor stream of c-1 lost, resuming within 1s: cut",
				"INFO [hop:b] monitor stream of c-2 lost, resuming within 1s: cut",
				"INFO [hop:b] monitor streams: 1 of 1 resumed, within 0s",
				"INFO [hop:a] monitor streams: 0 of 1 resumed, within 0s",
			},
		},
		"one, and then another": {
			func(l *losses) {
				for range 2 {
					l.begin("a", "c-1", time.Second, cut)
					l.end("a", true, 0)
					synctest.Wait()
				}
			},
			[]string{
				"INFO [hop:a] monitor stream of c-1 lost, resuming within 1s: cut",
				"INFO [hop:a] monitor streams: 1 of 1 resumed, within 0s",
				"INFO [hop:a] monitor stream of c-1 lost, resuming within 1s: cut",
				"INFO [hop:a] monitor streams: 1 of 1 resumed, within 0s",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wg sync.WaitGroup
				defer wg.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				lines := logtest.New()
				l := newLosses(background.New(ctx, &wg), lines)
				c.do(l)
				synctest.Wait()
				require.Equal(t, c.want, lines.All(""))
				require.Empty(t, l.hops)
			})
		})
	}
}

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
				one := l.begin("a", "c-1", 30*time.Second, cut)
				time.Sleep(300 * time.Millisecond)
				l.end(one, true, 300*time.Millisecond)
			},
			[]string{
				"INFO [hop:a] monitor stream of c-1 lost, resuming within 30s: cut",
				"INFO [hop:a] monitor streams: 1 of 1 resumed within 300ms",
			},
		},
		"a thousand, of which one is given up": {
			func(l *losses) {
				var all []*loss
				for n := range 1000 {
					all = append(all, l.begin("a", fmt.Sprintf("c-%d", n), 30*time.Second, cut))
				}
				time.Sleep(2 * time.Second)
				for _, one := range all[1:] {
					l.end(one, true, 1500*time.Millisecond)
				}
				time.Sleep(28 * time.Second)
				l.end(all[0], false, 30*time.Second)
			},
			[]string{
				"INFO [hop:a] monitor stream of c-0 lost, resuming within 30s: cut",
				"INFO [hop:a] 1000 monitor streams lost",
				"INFO [hop:a] monitor streams: 999 of 1000 resumed within 1.5s",
			},
		},
		"one that is never back keeps no other from being told": {
			func(l *losses) {
				_ = l.begin("a", "c-1", 30*time.Second, cut)
				time.Sleep(time.Minute)
				one := l.begin("a", "c-2", 30*time.Second, cut)
				l.end(one, true, 0)
				time.Sleep(gatherFor)
			},
			[]string{
				"INFO [hop:a] monitor stream of c-1 lost, resuming within 30s: cut",
				"INFO [hop:a] monitor streams: 0 of 1 resumed, 1 lost still",
				"INFO [hop:a] monitor stream of c-2 lost, resuming within 30s: cut",
				"INFO [hop:a] monitor streams: 1 of 1 resumed within 0s",
			},
		},
		"a hundred that have no grace": {
			func(l *losses) {
				for range 100 {
					l.end(l.begin("a", "c-1", 0, cut), false, 0)
				}
			},
			[]string{
				"INFO [hop:a] monitor stream of c-1 lost, resuming within 0s: cut",
				"INFO [hop:a] monitor streams: 0 of 100 resumed",
			},
		},
		"two hops": {
			func(l *losses) {
				a, b := l.begin("a", "c-1", time.Second, cut), l.begin("b", "c-2", time.Second, cut)
				time.Sleep(2 * time.Second)
				l.end(b, true, 2*time.Second)
				synctest.Wait()
				l.end(a, false, 0)
			},
			[]string{
				"INFO [hop:a] monitor stream of c-1 lost, resuming within 1s: cut",
				"INFO [hop:b] monitor stream of c-2 lost, resuming within 1s: cut",
				"INFO [hop:b] monitor streams: 1 of 1 resumed within 2s",
				"INFO [hop:a] monitor streams: 0 of 1 resumed",
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
				time.Sleep(gatherFor)
				synctest.Wait()
				require.Equal(t, c.want, lines.All(""))
				require.Empty(t, l.hops)
			})
		})
	}
}

package nsmgrproxy_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/park"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/warm"
)

// Whoever waits for a subscription to end has not the stack that it took to begin it.
func TestSubscriptionsAreWaitedForOnASmallStack(t *testing.T) {
	inBubble(t, func(w *world) {
		for n := range 3 {
			s, _ := w.watched(n)
			defer s.end()
		}
		synctest.Wait()
		stacks := make([]byte, 1<<20)
		waiting := 0
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "monitor.(*subscriber).wait") {
				waiting++
				require.NotContains(t, stack, "guard.monitorServer")
				require.NotContains(t, stack, "authorize")
			}
		}
		require.Equal(t, 3, waiting)
	})
}

func TestASubscriptionThatFailsIsLoggedOnce(t *testing.T) {
	ctx, lines, _ := logged(t)
	inBubbleOf(ctx, t, func(w *world) {
		s, conn := w.watched(1)
		defer s.end()
		deaf := w.deaf(1)
		for range 600 {
			refreshed, err := w.request(again(conn))
			require.NoError(w, err)
			conn = refreshed
			s.up()
		}
		require.Equal(w, codes.ResourceExhausted, status.Code(lastError(deaf)))
	})
	failed := 0
	for _, line := range lines.lines() {
		if strings.Contains(line, "MonitorConnections failed") {
			failed++
			require.Contains(t, line, "reads too slowly")
			require.Contains(t, line, "[WARN]")
		}
	}
	require.Equal(t, 1, failed)
}

// quietStream is the server's end of a stream without messages.
type quietStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s quietStream) Context() context.Context { return s.ctx }

func TestParked(t *testing.T) {
	failed := errors.New("of the test")
	waits := func(ss grpc.ServerStream, wait func(context.Context) error) error {
		return park.Wait(ss.Context(), wait)
	}
	ended := false // what was left has been given up
	untilEnd := func(ctx context.Context) error {
		<-ctx.Done()
		ended = true
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		begin func(ss grpc.ServerStream) error
		want  error
		code  codes.Code
		ended bool
	}{
		"one that leaves nothing": {begin: func(grpc.ServerStream) error { return nil }},
		"one that fails":          {begin: func(grpc.ServerStream) error { return failed }, want: failed, code: codes.Unknown},
		"one that panics":         {begin: func(grpc.ServerStream) error { panic("of the test") }, code: codes.Internal},
		"a wait that fails": {
			begin: func(ss grpc.ServerStream) error { return waits(ss, func(context.Context) error { return failed }) },
			want:  failed, code: codes.Unknown,
		},
		"a wait that panics": {
			begin: func(ss grpc.ServerStream) error {
				return waits(ss, func(context.Context) error { panic("of the test") })
			},
			code: codes.Internal,
		},
		"one that fails when it has left something": {
			begin: func(ss grpc.ServerStream) error { _ = waits(ss, untilEnd); return failed },
			want:  failed, code: codes.Unknown, ended: true,
		},
		"one that panics when it has left something": {
			begin: func(ss grpc.ServerStream) error { _ = waits(ss, untilEnd); panic("of the test") },
			code:  codes.Internal, ended: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended = false
				var wg sync.WaitGroup
				defer wg.Wait()
				ctx, cancel := context.WithCancel(log.WithLog(t.Context(), log.Empty()))
				defer cancel()
				handler := nsmgrproxy.Parked(warm.New(ctx, &wg), "Test", func(_ any, ss grpc.ServerStream) error { return c.begin(ss) })
				err := handler(nil, quietStream{ctx: ctx})
				require.Equal(t, c.code, status.Code(err), "%v", err)
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				}
				require.Equal(t, c.ended, ended)
			})
		})
	}
}

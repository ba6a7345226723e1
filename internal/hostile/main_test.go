// Package hostile_test does to the real process what a hostile or broken
// neighbour can do to it, over real mutual TLS: malformed messages by the
// hundreds at every call of every service, and misuse of the transport under
// them. The same messages go to the SDK's own chain, to compare.
//
// What the tests require: each message is answered, and soon; the process lives;
// others are served meanwhile; memory and goroutines come back.
package hostile_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/stockproxy"
)

// TestMain lets this binary be the SDK's proxy, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == stockproxy.Command {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := stockproxy.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

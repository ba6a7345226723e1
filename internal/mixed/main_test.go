package mixed

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/app"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/stockproxy"
)

// The arguments that make this binary be a proxy.
const (
	ours  = "nsmgr-proxy"
	stock = stockproxy.Command
)

// atOnce is how many tests run at a time unless told otherwise: all, however few
// processors there are. They wait for balancers and pings, and compute nothing.
const atOnce = 32

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case ours:
			os.Exit(app.Main(context.Background(), nil, os.Environ(), os.Stdout, os.Stderr))
		case stock:
			os.Exit(runStock())
		}
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(atOnce))
	}
	goleak.VerifyTestMain(m)
}

func runStock() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := stockproxy.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

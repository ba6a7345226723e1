package rotation

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/app"
)

// proxyCommand is the argument that makes this binary be the proxy.
const proxyCommand = "nsmgr-proxy"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == proxyCommand {
		os.Exit(app.Main(context.Background(), nil, os.Environ(), os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

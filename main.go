// The nsmgr-proxy joins the domains of a network service mesh: it is where a
// connection leaves one domain and where it enters the next.
package main

import (
	"context"
	"os"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/app"
)

func main() {
	os.Exit(app.Main(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

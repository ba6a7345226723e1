package floor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"google.golang.org/grpc"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

// The variables that the process reads, beside the address of the Workload API.
const (
	ListenVariable   = "FLOOR_LISTEN_ON" // ListenVariable holds host:port.
	UpstreamVariable = "FLOOR_UPSTREAM"  // UpstreamVariable holds host:port of the far side.
)

// Command is the argument that makes the harness's binary run this proxy.
const Command = "floor"

const (
	// tokenLifetime is the shipped NSM_MAX_TOKEN_LIFETIME.
	tokenLifetime = 10 * time.Minute
	// buffer is as small as ours, for a floor should not be undercut.
	buffer = 4 << 10
)

// Run serves until ctx ends.
func Run(ctx context.Context) error {
	id, err := identity.Open(ctx, os.Getenv("SPIFFE_ENDPOINT_SOCKET"))
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	defer func() { _ = id.Close() }()
	upstream, err := grpc.NewClient("passthrough:///"+os.Getenv(UpstreamVariable),
		grpc.WithTransportCredentials(id.ClientCredentials()),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer))
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	defer func() { _ = upstream.Close() }()
	listener, err := net.Listen("tcp", os.Getenv(ListenVariable))
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	server := grpc.NewServer(append(nsmgrproxy.ServerOptions(), grpc.Creds(id.ServerCredentials()))...)
	// One token is signed for each call. Ours gives one again for a second.
	Register(server, spiffejwt.TokenGeneratorFunc(id, tokenLifetime), upstream)

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
		server.Stop()
		err = <-served
	case err = <-served:
	}
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("floor: %w", err)
	}
	return nil
}

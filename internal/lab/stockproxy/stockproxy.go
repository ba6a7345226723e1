// Package stockproxy is an nsmgr-proxy made of the SDK's own chain with the
// settings that the stock command gives it: the thing to compare with.
//
// It reads the same NSM_* variables and has the stock command's faults on
// purpose: it blocks in dials without a deadline of its own, reports every loss
// at once, and stops hard.
package stockproxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/kelseyhightower/envconfig"
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgrproxy"
	"github.com/networkservicemesh/sdk/pkg/registry/common/authorize"
	"github.com/networkservicemesh/sdk/pkg/tools/grpcutils"
	"github.com/networkservicemesh/sdk/pkg/tools/listenonurl"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/log/logruslogger"
	"github.com/networkservicemesh/sdk/pkg/tools/spiffejwt"
	"github.com/networkservicemesh/sdk/pkg/tools/token"
	"github.com/sirupsen/logrus"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Command is the argument that makes the lab's binary run this proxy instead.
const Command = "stock-nsmgr-proxy"

// settings are the variables that matter to the chain.
type settings struct {
	Name             string        `default:"nsmgr-proxy"`
	ListenOn         []url.URL     `default:"unix:///listen.on.socket" split_words:"true"`
	MaxTokenLifetime time.Duration `default:"10m" split_words:"true"`
	MapIPFilePath    string        `default:"map-ip.yaml" split_words:"true"`
	RegistryProxyURL *url.URL      `split_words:"true"`
	RegistryURL      *url.URL      `split_words:"true"`
	LogLevel         string        `default:"INFO" split_words:"true"`

	RegistryServerPolicies []string `split_words:"true"`
	RegistryClientPolicies []string `split_words:"true"`
}

// The policies that the stock command uses where none are set. The SDK has them
// built in.
var (
	defaultServerPolicies = []string{
		"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/server/.*.rego",
	}
	defaultClientPolicies = []string{
		"etc/nsm/opa/common/.*.rego", "etc/nsm/opa/registry/.*.rego", "etc/nsm/opa/client/.*.rego",
	}
)

// Run serves until ctx ends or a listener fails.
func Run(ctx context.Context) error {
	set := &settings{RegistryServerPolicies: defaultServerPolicies, RegistryClientPolicies: defaultClientPolicies}
	if err := envconfig.Process("nsm", set); err != nil {
		return fmt.Errorf("stockproxy: %w", err)
	}
	level, err := logrus.ParseLevel(set.LogLevel)
	if err != nil {
		return fmt.Errorf("stockproxy: %w", err)
	}
	logrus.SetLevel(level)
	logrus.SetOutput(os.Stdout)
	log.EnableTracing(level == logrus.TraceLevel)
	ctx = log.WithLog(ctx, logruslogger.New(ctx, map[string]any{"cmd": set.Name}))

	source, err := workloadapi.NewX509Source(ctx)
	if err != nil {
		return fmt.Errorf("stockproxy: %w", err)
	}
	defer func() { _ = source.Close() }()
	return serve(ctx, set, source)
}

func serve(ctx context.Context, set *settings, source *workloadapi.X509Source) error {
	clientTLS := tlsconfig.MTLSClientConfig(source, source, tlsconfig.AuthorizeAny())
	clientTLS.MinVersion = tls.VersionTLS12
	serverTLS := tlsconfig.MTLSServerConfig(source, source, tlsconfig.AuthorizeAny())
	serverTLS.MinVersion = tls.VersionTLS12
	tokens := spiffejwt.TokenGeneratorFunc(source, set.MaxTokenLifetime)

	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("stockproxy: %w", err)
	}
	serverPolicies := authorize.WithPolicies(set.RegistryServerPolicies...)
	clientPolicies := authorize.WithPolicies(set.RegistryClientPolicies...)
	chain := nsmgrproxy.NewServer(ctx, set.RegistryURL, set.RegistryProxyURL, tokens,
		nsmgrproxy.WithName(set.Name),
		nsmgrproxy.WithListenOn(listenonurl.GetPublicURL(addrs, &set.ListenOn[0])),
		nsmgrproxy.WithMapIPFilePath(set.MapIPFilePath),
		nsmgrproxy.WithAuthorizeNSRegistryServer(authorize.NewNetworkServiceRegistryServer(serverPolicies)),
		nsmgrproxy.WithAuthorizeNSERegistryServer(authorize.NewNetworkServiceEndpointRegistryServer(serverPolicies)),
		nsmgrproxy.WithAuthorizeNSRegistryClient(authorize.NewNetworkServiceRegistryClient(clientPolicies)),
		nsmgrproxy.WithAuthorizeNSERegistryClient(authorize.NewNetworkServiceEndpointRegistryClient(clientPolicies)),
		nsmgrproxy.WithDialOptions(
			grpc.WithTransportCredentials(credentials.NewTLS(clientTLS)),
			grpc.WithBlock(), //nolint:staticcheck // the stock command does
			grpc.WithDefaultCallOptions(
				grpc.WaitForReady(true),
				grpc.PerRPCCredentials(token.NewPerRPCCredentials(tokens)),
			),
		),
	)

	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(serverTLS)))
	defer server.Stop()
	register, ok := chain.(interface{ Register(*grpc.Server) })
	if !ok {
		return fmt.Errorf("stockproxy: %T cannot be registered", chain)
	}
	register.Register(server)
	failed := make(chan error, len(set.ListenOn))
	for i := range set.ListenOn {
		errs := grpcutils.ListenAndServe(ctx, &set.ListenOn[i], server)
		go func() { failed <- <-errs }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		if err == nil { // stopped, because ctx ended
			return nil
		}
		return fmt.Errorf("stockproxy: %w", err)
	}
}

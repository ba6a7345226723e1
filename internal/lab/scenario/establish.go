package scenario

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/domain"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	service = "lab"
	// resumedText is what the outbound proxy logs when it has resumed.
	resumedText = "monitor stream resumed"
	// pathLength is the number of segments from client to endpoint.
	pathLength = 8
)

// establish brings everything up, in the order in which it needs one another.
func (l *lab) establish(ctx context.Context) error {
	if err := l.startDomains(); err != nil {
		return err
	}
	if err := l.startBalancer(); err != nil {
		return err
	}
	for number := range l.domains {
		if err := l.startProxy(number); err != nil {
			return err
		}
	}
	for number := range l.domains {
		if err := l.awaitProxy(ctx, number); err != nil {
			return err
		}
	}
	for number, direction := range []domain.Direction{domain.Outwards, domain.Inwards} {
		if err := l.domains[number].StartNode(ctx, direction); err != nil {
			return err
		}
	}
	var err error
	if l.kill, err = l.domains[1].StartEndpoint(ctx, "endpoint-1", service); err != nil {
		return err
	}
	return l.connect(ctx)
}

func (l *lab) startDomains() error {
	var err error
	for i := range l.cas {
		if l.cas[i], err = identitytest.NewCA(fmt.Sprintf("nsm.cluster%d", i+1)); err != nil {
			return err
		}
	}
	if l.dns, err = domain.StartDNS(); err != nil {
		return err
	}
	for i := range l.domains {
		l.domains[i], err = domain.Start(l.ctx, &domain.Config{
			Number:        i + 1,
			CA:            l.cas[i],
			Federated:     []*identitytest.CA{l.cas[1-i]},
			TokenLifetime: l.options.TokenLifetime(),
			Resolver:      l.dns.Resolver(),
			KubernetesAPI: i == 1, // one domain of each kind
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// startBalancer puts the relay in front of the second domain's proxy and
// publishes the addresses: the proxy of that domain is where the relay is.
func (l *lab) startBalancer() error {
	const hop = "3-4" // the path segments on either side
	var err error
	l.relay, err = lbtest.Listen(l.domains[1].Outside().String()+":0", l.domains[1].ProxyURL.Host,
		lbtest.WithIdle(l.options.Idle),
		lbtest.WithOnCut(func(reason string) {
			l.book.Cut(time.Now(), reason)
			l.say(ledger.Balancer, "CUT", "", hop, reason)
		}),
		lbtest.WithOnAccept(func() {
			l.say(ledger.Balancer, "DIAL", "", hop, l.book.Accepted(time.Now()))
		}))
	if err != nil {
		return err
	}
	proxies := [2]string{l.domains[0].ProxyURL.Host, l.relay.Addr()}
	for i, d := range l.domains {
		if err = l.dns.Publish("registry", d.Name(), d.RegistryURL.Host); err != nil {
			return err
		}
		if err = l.dns.Publish("nsmgr-proxy", d.Name(), proxies[i]); err != nil {
			return err
		}
	}
	return nil
}

// startProxy starts the nsmgr-proxy of a domain as a process of its own, with
// an identity from a Workload API as it has in a cluster.
func (l *lab) startProxy(number int) error {
	d := l.domains[number]
	name := fmt.Sprintf("nsmgr-proxy-%d", number+1)
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	const svidLifetime = 23 * time.Hour // the CA's is 24 h
	workload, err := identitytest.ServeWorkloadAPI(filepath.Join(dir, "workload.sock"), d.CA, "nsmgr-proxy",
		identitytest.WithTTL(svidLifetime), identitytest.WithFederated(d.Federated...))
	if err != nil {
		return err
	}
	l.workloads = append(l.workloads, workload)

	mapFile := filepath.Join(dir, "map-ip.yaml")
	mapText := fmt.Sprintf("%s: %s\n", d.Inside(), d.Outside())
	if err = os.WriteFile(mapFile, []byte(mapText), 0o600); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	env := append(passedOn(os.Environ()),
		"SPIFFE_ENDPOINT_SOCKET="+workload.Addr(),
		"TELEMETRY=false",
		"NSM_NAME="+name,
		"NSM_LISTEN_ON="+d.ProxyURL.String(),
		"NSM_REGISTRY_URL="+d.RegistryURL.String(),
		"NSM_REGISTRY_PROXY_URL="+d.RegistryProxyURL.String(),
		"NSM_MAP_IP_FILE_PATH="+mapFile,
		"NSM_MAX_TOKEN_LIFETIME="+d.TokenLifetime.String(),
		"NSM_LOG_LEVEL=INFO",
	)
	if interval, ok := l.options.proxyProbe(); ok {
		env = append(env, "NSM_HOP_PROBE_INTERVAL="+interval.String())
	}
	child, err := proc.Start(&proc.Spec{
		Name: name,
		Path: l.options.ProxyPath,
		Args: l.options.ProxyArgs,
		Env:  env,
		Dir:  dir,
		Log:  filepath.Join(l.logDir, name+".log"),
		OnLine: func(line string) {
			if number == 0 && strings.Contains(line, resumedText) {
				l.book.Resumed()
				l.say(ledger.Proxy, "RESUMED", "", "3-4", "said in its log")
			}
		},
	})
	if err != nil {
		return err
	}
	l.children = append(l.children, child)
	l.wg.Go(func() {
		select {
		case <-child.Done():
			l.cancel(child.Err())
		case <-l.ctx.Done():
		}
	})
	return nil
}

// passedOn keeps what a process needs of our environment, and no NSM_* setting.
func passedOn(environ []string) []string {
	keep := []string{"PATH=", "HOME=", "TMPDIR=", "GOCOVERDIR="}
	return slices.DeleteFunc(environ, func(entry string) bool {
		return !slices.ContainsFunc(keep, func(key string) bool { return strings.HasPrefix(entry, key) })
	})
}

// awaitProxy waits until a proxy answers a health check over mutual TLS.
func (l *lab) awaitProxy(ctx context.Context, number int) error {
	id, err := l.domains[number].Identity("lab")
	if err != nil {
		return err
	}
	cc, err := grpc.NewClient("passthrough:///"+l.domains[number].ProxyURL.Host, id.DialOptions()...)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	defer func() { _ = cc.Close() }()
	const between = 50 * time.Millisecond
	for {
		answer, err := healthpb.NewHealthClient(cc).Check(ctx, new(healthpb.HealthCheckRequest), grpc.WaitForReady(true))
		if err == nil && answer.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nsmgr-proxy-%d does not serve: %w", number+1, err)
		}
		if err := l.sleep(between); err != nil {
			return err
		}
	}
}

// connect makes the connections and starts to watch them.
func (l *lab) connect(ctx context.Context) error {
	var err error
	if l.observer, err = newObserver(l); err != nil {
		return err
	}
	if l.client, err = l.domains[0].NewClient(l.book.Started, l.observer.answered); err != nil {
		return err
	}
	run := rand.Text()
	for i := range l.options.Connections {
		conn, err := l.client.Connect(ctx, fmt.Sprintf("lab-%s-%d", run, i+1), service+"@"+l.domains[1].Name())
		if err != nil {
			return err
		}
		l.segments = len(conn.GetPath().GetPathSegments())
		if l.segments != pathLength {
			return fmt.Errorf("lab: connection %d has %d path segments, want %d", i+1, l.segments, pathLength)
		}
	}
	if err = l.observer.awaitSubscribed(ctx, l.options.Connections); err != nil {
		return err
	}
	there, back := l.domains[1].Tunnel().PeerSource, l.domains[0].Tunnel().PeerDestination
	l.say(ledger.Client, "ESTABLISHED", "UP", fmt.Sprintf("0-%d", pathLength-1), "tunnel "+there+" > "+back)
	if there != l.domains[0].Outside().String() || back != l.domains[1].Outside().String() {
		return fmt.Errorf("lab: tunnel addresses %q and %q, want the outside ones, %s and %s",
			there, back, l.domains[0].Outside(), l.domains[1].Outside())
	}
	return nil
}

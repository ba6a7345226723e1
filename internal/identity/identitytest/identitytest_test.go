package identitytest_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

// wait bounds what a loopback socket answers in microseconds.
const wait = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCA(t *testing.T, td string) *identitytest.CA {
	ca, err := identitytest.NewCA(td)
	require.NoError(t, err)
	return ca
}

func serve(t *testing.T, ca *identitytest.CA, opts ...identitytest.Option) *identitytest.WorkloadAPI {
	// The path of a unix socket may have 108 bytes; t.TempDir is longer for
	// long test names.
	dir, err := os.MkdirTemp("", "wl")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	api, err := identitytest.ServeWorkloadAPI(filepath.Join(dir, "s"), ca, "proxy", opts...)
	require.NoError(t, err)
	t.Cleanup(api.Close)
	return api
}

func openSource(t *testing.T, api *identitytest.WorkloadAPI) *workloadapi.X509Source {
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr(api.Addr())))
	require.NoError(t, err)
	t.Cleanup(func() { _ = source.Close() })
	return source
}

func waitUpdated(t *testing.T, source *workloadapi.X509Source) {
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	require.NoError(t, source.WaitUntilUpdated(ctx))
}

// handshake runs over a buffer, not net.Pipe: two sides that send an alert at
// the same time would wait for each other for ever. It reads the server's last
// words, because under TLS 1.3 the client is content before the server has
// judged its certificate.
func handshake(t *testing.T, server, client *tls.Config) error {
	wire := lbtest.NewWire()
	listener := wire.Listen("server")
	defer func() { _ = listener.Close() }()
	done := make(chan error, 1)
	go func() {
		raw, err := listener.Accept()
		if err == nil {
			defer func() { _ = raw.Close() }()
			err = tls.Server(raw, server).Handshake()
		}
		done <- err
	}()
	raw, err := wire.Dial(t.Context(), "server")
	require.NoError(t, err)
	defer func() { _ = raw.Close() }()
	conn := tls.Client(raw, client)
	if err = conn.Handshake(); err == nil {
		_, _ = conn.Read(make([]byte, 1))
	}
	return errors.Join(<-done, err)
}

func TestInvalidNames(t *testing.T) {
	_, err := identitytest.NewCA("Not A Domain")
	require.ErrorContains(t, err, "identitytest: trust domain")
	_, err = newCA(t, "nsm.one").SVID("spiffe://nsm.one/x", time.Hour)
	require.ErrorContains(t, err, "identitytest: path")
}

func TestSVIDLifetime(t *testing.T) {
	ca := newCA(t, "nsm.one")
	short, err := ca.SVID("a/b", time.Minute)
	require.NoError(t, err)
	require.Equal(t, "spiffe://nsm.one/a/b", short.ID.String())
	require.WithinDuration(t, time.Now().Add(time.Minute), short.Certificates[0].NotAfter, 5*time.Second)

	long, err := ca.SVID("a", 1000*time.Hour)
	require.NoError(t, err)
	require.Equal(t, ca.Bundle().X509Authorities()[0].NotAfter, long.Certificates[0].NotAfter)
}

func TestSourceInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newCA(t, "nsm.one"), newCA(t, "nsm.two")
		server, err := identitytest.NewSource(one, "server", time.Hour, two)
		require.NoError(t, err)
		client, err := identitytest.NewSource(two, "client", time.Hour, one)
		require.NoError(t, err)
		stranger, err := identitytest.NewSource(newCA(t, "nsm.three"), "x", time.Hour, one)
		require.NoError(t, err)
		serverTLS := tlsconfig.MTLSServerConfig(server, server, tlsconfig.AuthorizeAny())
		clientTLS := tlsconfig.MTLSClientConfig(client, client, tlsconfig.AuthorizeAny())

		require.NoError(t, handshake(t, serverTLS, clientTLS))
		require.Error(t, handshake(t, serverTLS, tlsconfig.MTLSClientConfig(stranger, stranger, tlsconfig.AuthorizeAny())))

		time.Sleep(time.Hour + time.Second)
		require.Error(t, handshake(t, serverTLS, clientTLS), "both SVIDs have expired")
		require.NoError(t, server.Rotate())
		require.NoError(t, client.Rotate())
		require.NoError(t, handshake(t, serverTLS, clientTLS))
	})
}

func TestRootsChange(t *testing.T) {
	ca := newCA(t, "nsm.one")
	api := serve(t, ca)
	source := openSource(t, api)
	own, err := identitytest.NewSource(ca, "x", time.Hour)
	require.NoError(t, err)
	authorities := func(s x509bundle.Source) int {
		bundle, err := s.GetX509BundleForTrustDomain(ca.TrustDomain())
		require.NoError(t, err)
		return len(bundle.X509Authorities())
	}
	verified := func() error {
		svid, err := own.GetX509SVID()
		require.NoError(t, err)
		_, _, err = x509svid.Verify(svid.Certificates, own)
		return err
	}
	require.NoError(t, ca.Prepare())
	api.Push()
	waitUpdated(t, source)
	require.Equal(t, 2, authorities(source))
	require.Equal(t, 2, authorities(own))
	require.NoError(t, verified())
	ca.Activate()
	require.NoError(t, own.Rotate())
	require.NoError(t, verified())
	ca.Retire()
	require.Equal(t, 1, authorities(own))
	require.NoError(t, verified(), "signed with the new one")
	require.NoError(t, ca.Prepare())
	ca.Retire()
	require.Error(t, verified())
}

func TestWorkloadAPIRotatesAndFederates(t *testing.T) {
	one, two := newCA(t, "nsm.one"), newCA(t, "nsm.two")
	api := serve(t, one, identitytest.WithTTL(2*time.Minute))
	source, other := openSource(t, api), openSource(t, api)

	first, err := source.GetX509SVID()
	require.NoError(t, err)
	require.Equal(t, "spiffe://nsm.one/proxy", first.ID.String())
	require.WithinDuration(t, time.Now().Add(2*time.Minute), first.Certificates[0].NotAfter, 5*time.Second)
	bundle, err := source.GetX509BundleForTrustDomain(one.TrustDomain())
	require.NoError(t, err)
	require.True(t, bundle.Equal(one.Bundle()))
	_, err = source.GetX509BundleForTrustDomain(two.TrustDomain())
	require.Error(t, err)

	require.NoError(t, api.Rotate())
	waitUpdated(t, source)
	waitUpdated(t, other)
	second, err := source.GetX509SVID()
	require.NoError(t, err)
	require.NotEqual(t, first.Certificates[0].SerialNumber, second.Certificates[0].SerialNumber)
	same, err := other.GetX509SVID()
	require.NoError(t, err)
	require.True(t, same.Certificates[0].Equal(second.Certificates[0]), "all streams see one SVID")

	api.SetFederated(two)
	waitUpdated(t, source)
	bundle, err = source.GetX509BundleForTrustDomain(two.TrustDomain())
	require.NoError(t, err)
	require.True(t, bundle.Equal(two.Bundle()))

	api.SetFederated()
	waitUpdated(t, source)
	_, err = source.GetX509BundleForTrustDomain(two.TrustDomain())
	require.Error(t, err)
}

func TestWorkloadAPIBundles(t *testing.T) {
	one, two := newCA(t, "nsm.one"), newCA(t, "nsm.two")
	api := serve(t, one, identitytest.WithFederated(two))
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	set, err := workloadapi.FetchX509Bundles(ctx, workloadapi.WithAddr(api.Addr()))
	require.NoError(t, err)
	require.Equal(t, 2, set.Len())
	require.True(t, set.Has(one.TrustDomain()))
	require.True(t, set.Has(two.TrustDomain()))
}

func TestWorkloadAPIRefuses(t *testing.T) {
	api := serve(t, newCA(t, "nsm.one"))
	conn, err := grpc.NewClient(api.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	client := workload.NewSpiffeWorkloadAPIClient(conn)
	code := func(md ...string) codes.Code {
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), md...), wait)
		defer cancel()
		svids, err := client.FetchX509SVID(ctx, &workload.X509SVIDRequest{})
		require.NoError(t, err)
		_, svidErr := svids.Recv()
		bundles, err := client.FetchX509Bundles(ctx, &workload.X509BundlesRequest{})
		require.NoError(t, err)
		_, bundlesErr := bundles.Recv()
		require.Equal(t, status.Code(svidErr), status.Code(bundlesErr))
		return status.Code(svidErr)
	}
	require.Equal(t, codes.InvalidArgument, code())
	require.Equal(t, codes.InvalidArgument, code("workload.spiffe.io", "yes"))
	require.Equal(t, codes.OK, code("workload.spiffe.io", "true"))
	api.SetDenied(true)
	require.Equal(t, codes.PermissionDenied, code("workload.spiffe.io", "true"))
	api.SetDenied(false)
	require.Equal(t, codes.OK, code("workload.spiffe.io", "true"))
}

func TestWorkloadAPICloseEndsStreamsAndComesBack(t *testing.T) {
	ca := newCA(t, "nsm.one")
	api := serve(t, ca)
	conn, err := grpc.NewClient(api.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "workload.spiffe.io", "true"), wait)
	defer cancel()
	stream, err := workload.NewSpiffeWorkloadAPIClient(conn).FetchX509SVID(ctx, &workload.X509SVIDRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)

	api.Close()
	api.Close()
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	socket := api.Addr()[len("unix://"):]
	require.NoFileExists(t, socket)

	// A killed agent leaves its socket behind.
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	again, err := identitytest.ServeWorkloadAPI(socket, ca, "proxy")
	require.NoError(t, err)
	defer again.Close()
	openSource(t, again)
}

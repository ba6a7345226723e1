package identitytest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// defaultTTL is SPIRE's own default for X.509 SVIDs.
const defaultTTL = time.Hour

// Option changes how a WorkloadAPI starts.
type Option func(*WorkloadAPI)

// WithTTL sets the lifetime of each SVID. The default is one hour.
func WithTTL(ttl time.Duration) Option {
	return func(w *WorkloadAPI) { w.ttl = ttl }
}

// WithFederated sets the foreign authorities whose bundles are handed out.
func WithFederated(cas ...*CA) Option {
	return func(w *WorkloadAPI) { w.state.federated = cas }
}

// WorkloadAPI hands one identity to whoever connects to its socket, without
// attestation. Every open stream gets the whole new state at each change;
// changes that follow faster than a stream can send are merged. It is safe for
// concurrent use.
type WorkloadAPI struct {
	workload.UnimplementedSpiffeWorkloadAPIServer

	ca     *CA
	path   string
	ttl    time.Duration
	addr   string
	server *grpc.Server
	stop   chan struct{}
	served chan struct{}
	close  sync.Once

	mu    sync.Mutex
	state state // guarded by mu
}

// state is what streams send. It is replaced as a whole; changed is closed when
// that happens.
type state struct {
	svid      *x509svid.SVID
	federated []*CA
	denied    bool
	changed   chan struct{}
}

// ServeWorkloadAPI serves the identity spiffe://<trust domain of ca>/<id> on a
// unix socket at socketPath, whose folder has to exist. A socket that an
// earlier process left there is removed. Close has to be called.
func ServeWorkloadAPI(socketPath string, ca *CA, id string, opts ...Option) (*WorkloadAPI, error) {
	w := &WorkloadAPI{
		ca:     ca,
		path:   id,
		ttl:    defaultTTL,
		addr:   "unix://" + socketPath,
		server: grpc.NewServer(grpc.WaitForHandlers(true)),
		stop:   make(chan struct{}),
		served: make(chan struct{}),
	}
	for _, opt := range opts {
		opt(w)
	}
	w.state.changed = make(chan struct{})
	if err := w.Rotate(); err != nil {
		return nil, err
	}
	if err := os.Remove(socketPath); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("identitytest: stale socket: %w", err)
	}
	listener, err := net.Listen("unix", socketPath)
	if err != nil {
		return nil, fmt.Errorf("identitytest: listen: %w", err)
	}
	workload.RegisterSpiffeWorkloadAPIServer(w.server, w)
	go func() {
		defer close(w.served)
		// Serve's error can only say that Close was called.
		_ = w.server.Serve(listener)
	}()
	return w, nil
}

// Addr returns the address to put into SPIFFE_ENDPOINT_SOCKET.
func (w *WorkloadAPI) Addr() string { return w.addr }

// Rotate replaces the SVID by one with a new key and the full ttl, and pushes
// it. If it fails the old one stays.
func (w *WorkloadAPI) Rotate() error {
	svid, err := w.ca.SVID(w.path, w.ttl)
	if err != nil {
		return err
	}
	w.update(func(s *state) { s.svid = svid })
	return nil
}

// SetFederated replaces the foreign authorities and pushes their bundles.
func (w *WorkloadAPI) SetFederated(cas ...*CA) {
	w.update(func(s *state) { s.federated = cas })
}

// Push sends the bundles as they are now, after an authority has changed its roots.
func (w *WorkloadAPI) Push() {
	w.update(func(*state) {})
}

// SetDenied makes every call, open streams included, end with PermissionDenied:
// what an agent says to a workload that has no entry. SetDenied(false) ends it.
func (w *WorkloadAPI) SetDenied(denied bool) {
	w.update(func(s *state) { s.denied = denied })
}

// Close ends all streams with Unavailable, removes the socket and waits until
// nothing of the server runs. It may be called more than once.
func (w *WorkloadAPI) Close() {
	w.close.Do(func() {
		close(w.stop)
		w.server.Stop()
	})
	<-w.served
}

func (w *WorkloadAPI) update(change func(*state)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.state)
	close(w.state.changed)
	w.state.changed = make(chan struct{})
}

func (w *WorkloadAPI) current() state {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// FetchX509SVID streams the SVID with all bundles.
func (w *WorkloadAPI) FetchX509SVID(
	_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse],
) error {
	return w.push(stream, func(s *state) error {
		certs, key, err := s.svid.MarshalRaw()
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		return stream.Send(&workload.X509SVIDResponse{
			Svids: []*workload.X509SVID{{
				SpiffeId:    s.svid.ID.String(),
				X509Svid:    certs,
				X509SvidKey: key,
				Bundle:      marshalBundle(w.ca.Bundle()),
			}},
			FederatedBundles: marshalBundles(s.federated),
		})
	})
}

// FetchX509Bundles streams the bundles alone.
func (w *WorkloadAPI) FetchX509Bundles(
	_ *workload.X509BundlesRequest, stream grpc.ServerStreamingServer[workload.X509BundlesResponse],
) error {
	return w.push(stream, func(s *state) error {
		bundles := marshalBundles(s.federated)
		bundles[w.ca.TrustDomain().IDString()] = marshalBundle(w.ca.Bundle())
		return stream.Send(&workload.X509BundlesResponse{Bundles: bundles})
	})
}

// push sends the current state and then every change until the stream or the
// server ends.
func (w *WorkloadAPI) push(stream grpc.ServerStream, send func(*state) error) error {
	// The header is how the specification keeps browsers and other confused
	// deputies out: they cannot set it.
	md, _ := metadata.FromIncomingContext(stream.Context())
	if v := md.Get("workload.spiffe.io"); len(v) != 1 || v[0] != "true" {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	for {
		s := w.current()
		if s.denied {
			return status.Error(codes.PermissionDenied, "no identity issued")
		}
		if err := send(&s); err != nil {
			return err
		}
		select {
		case <-s.changed:
		case <-w.stop:
			return status.Error(codes.Unavailable, "workload API is shutting down")
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

func marshalBundles(cas []*CA) map[string][]byte {
	bundles := make(map[string][]byte, len(cas)+1)
	for _, ca := range cas {
		bundles[ca.TrustDomain().IDString()] = marshalBundle(ca.Bundle())
	}
	return bundles
}

// marshalBundle gives the authorities as DER, one after another.
func marshalBundle(b *x509bundle.Bundle) []byte {
	var der bytes.Buffer
	for _, cert := range b.X509Authorities() {
		der.Write(cert.Raw)
	}
	return der.Bytes()
}

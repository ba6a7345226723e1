package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/identity/identitytest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
)

const (
	// farStart bounds the start of the far side on a busy machine.
	farStart = 30 * time.Second
	// farAnswer bounds an answer of its control socket.
	farAnswer = 10 * time.Second
)

// farProcess is the far side as the harness sees it.
type farProcess struct {
	*proc.Process
	addr     string
	workload *identitytest.WorkloadAPI
	client   *http.Client

	mu   sync.Mutex
	last Counts // guarded by mu
}

// startFar starts the far side with an identity of its own, and returns when it serves.
func startFar(ctx context.Context, self, dir string, ca *identitytest.CA, name string, federated *identitytest.CA) (*farProcess, error) {
	workload, err := identitytest.ServeWorkloadAPI(filepath.Join(dir, "far-workload.sock"), ca, name,
		identitytest.WithTTL(svidLifetime), identitytest.WithFederated(federated))
	if err != nil {
		return nil, err
	}
	control := filepath.Join(dir, "far.sock")
	f := &farProcess{workload: workload, client: &http.Client{Timeout: farAnswer, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", control)
		},
	}}}
	f.Process, err = proc.Start(&proc.Spec{
		Name: FarCommand, Path: self, Args: []string{FarCommand}, Dir: dir, Log: filepath.Join(dir, "far.log"),
		// Without the limits that a run sets the proxy.
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"),
			"SPIFFE_ENDPOINT_SOCKET=" + workload.Addr(), controlVariable + "=" + control,
		},
	})
	if err != nil {
		workload.Close()
		return nil, err
	}
	if err = f.await(ctx); err != nil {
		f.close()
		return nil, fmt.Errorf("%w\n%s", err, f.Tail(5))
	}
	return f, nil
}

func (f *farProcess) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, farStart)
	defer cancel()
	const between = 5 * time.Millisecond
	ticker := time.NewTicker(between)
	defer ticker.Stop()
	for {
		err := f.ask(ctx, "addr", &f.addr)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-f.Done():
			return f.Err()
		case <-ctx.Done():
			return fmt.Errorf("neighbours: the far side does not serve: %w", err)
		}
	}
}

func (f *farProcess) close() {
	f.client.CloseIdleConnections()
	f.Stop()
	f.workload.Close()
}

// ask gets an answer of the control socket.
func (f *farProcess) ask(ctx context.Context, what string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://far/"+what, http.NoBody)
	if err != nil {
		return fmt.Errorf("neighbours: far side: %w", err)
	}
	got, err := f.client.Do(request)
	if err != nil {
		return fmt.Errorf("neighbours: far side: %w", err)
	}
	defer func() { _ = got.Body.Close() }()
	if err = json.NewDecoder(got.Body).Decode(answer); err != nil {
		return fmt.Errorf("neighbours: far side: %s: %w", what, err)
	}
	return nil
}

// counts are those of the far side. One that does not answer has ended, which ends the
// run; until then they are what they were.
func (f *farProcess) counts() Counts {
	var counts Counts
	err := f.ask(context.Background(), "counts", &counts)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.last = counts
	}
	return f.last
}

func (f *farProcess) cut() int {
	n := 0
	_ = f.ask(context.Background(), "cut", &n)
	return n
}

func (f *farProcess) watchedAfter(then time.Time) []time.Duration {
	var after []time.Duration
	_ = f.ask(context.Background(), "watched?after="+url.QueryEscape(then.Format(time.RFC3339Nano)), &after)
	return after
}

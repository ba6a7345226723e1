//go:build linux

package hostile_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lbtest"
)

const (
	floodConns    = 1_000
	floodStreams  = 10_000
	floodMessages = 200
	floodRequests = 5_000
	floodHeaders  = 1_000
	floodLegs     = 80
	// idleConns is how many connections of ours a flood of streams comes over.
	idleConns = 4
	// hold is how long a flood lasts that does not end by itself.
	hold = 700 * time.Millisecond
)

// connectionFlood opens connections and keeps those that it may.
func connectionFlood(t *testing.T, p *process) {
	const workers = 8
	var kept, refused atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range floodConns / workers {
				if c, err := p.tryHTTP(p.addr); err == nil {
					kept.Add(1)
					defer func() { _ = c.Close() }()
				} else {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d connections kept, %d refused", kept.Load(), refused.Load())
}

// subscriptionFlood subscribes over a few connections as often as it may.
func subscriptionFlood(t *testing.T, p *process, selector *networkservice.MonitorScopeSelector) {
	callFlood(t, p, floodStreams, callHeaders(monitorService+"MonitorConnections"), message(wireOf(t, selector)))
}

// watchFlood watches the registry as often as it may.
func watchFlood(t *testing.T, p *process) {
	query := &registry.NetworkServiceEndpointQuery{NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: "x"}, Watch: true}
	callFlood(t, p, floodStreams, callHeaders(endpointRegistry+"Find"), message(wireOf(t, query)))
}

// headerFlood subscribes with headers as long as they may be, and longer.
func headerFlood(t *testing.T, p *process) {
	selector := message(wireOf(t, &networkservice.MonitorScopeSelector{PathSegments: []*networkservice.PathSegment{{Id: "x"}}}))
	for _, size := range []int{60 << 10, 15 << 10} {
		callFlood(t, p, floodHeaders, callHeaders(monitorService+"MonitorConnections", "x", strings.Repeat("x", size)), selector)
	}
}

// messageFlood sends all of many messages but their last byte, as fast as the
// windows of one connection let it.
func messageFlood(t *testing.T, p *process) {
	for _, size := range []int{1 << 20, 256 << 10} {
		transport := &http.Transport{TLSClientConfig: tlsconfig.MTLSClientConfig(p.source, p.source, tlsconfig.AuthorizeAny()), ForceAttemptHTTP2: true}
		ctx, cancel := context.WithTimeout(t.Context(), hold)
		outcomes := newTable("all but a byte", "answered with")
		var wg sync.WaitGroup
		for range floodMessages {
			wg.Go(func() {
				outcomes.add(fmt.Sprintf("%d KiB", size>>10), unfinished(ctx, transport, p.addr, size))
			})
		}
		wg.Wait()
		cancel()
		transport.CloseIdleConnections()
		t.Logf("\n%s", outcomes)
	}
}

// unfinished sends a Request without its last byte and returns what is answered
// before ctx ends.
func unfinished(ctx context.Context, transport *http.Transport, addr string, size int) string {
	body := make([]byte, 5+size-1)
	binary.BigEndian.PutUint32(body[1:], uint32(size))
	r, w := io.Pipe()
	defer func() { _ = r.Close() }()
	go func() { _, _ = w.Write(body) }() // and no end
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+networkService+"Request", r)
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := transport.RoundTrip(request)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nothing
	case err != nil:
		return "an error"
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return "grpc-status " + response.Header.Get("Grpc-Status") + response.Trailer.Get("Grpc-Status")
}

// legFlood makes connections whose messages are as large as they may be, all at once.
func legFlood(t *testing.T, p *process) {
	sendAll(t, p, "200 KiB", floodLegs, floodLegs, answerTime, func(n int) *networkservice.NetworkServiceRequest {
		request := goodRequest(fmt.Sprintf("large-%d", n))
		unknown := protowire.AppendTag(nil, 1000, protowire.BytesType)
		request.Connection.ProtoReflect().SetUnknown(protowire.AppendBytes(unknown, make([]byte, 200<<10)))
		return request
	})
}

// sendAll makes so many Requests over one connection, some at a time, and logs what they
// are answered with.
func sendAll(t *testing.T, p *process, kind string, total, atOnce int, patience time.Duration, request func(n int) *networkservice.NetworkServiceRequest, opts ...grpc.CallOption) {
	client := networkservice.NewNetworkServiceClient(p.dial(t, p.addr, p.tokens()))
	outcomes := newTable("Requests", "answered with")
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(total); n = next.Add(1) {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				_, err := client.Request(ctx, request(int(n)), opts...)
				cancel()
				outcomes.add(kind, status.Code(err).String())
			}
		})
	}
	wg.Wait()
	t.Logf("\n%s", outcomes)
}

// silentFlood makes calls that are answered at once, and reads no answer.
func silentFlood(t *testing.T, p *process) {
	headers := callHeaders(healthService+"None", "x", strings.Repeat("x", 15<<10))
	conns := p.someHTTP(t)
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			for n := range floodStreams / idleConns {
				if b := split(uint32(2*n+1), headers, flagEndHeaders|flagEndStream); c.write(b) < len(b) {
					t.Logf("a connection that is not read from took %d calls", n)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, c := range conns {
		_ = c.Close()
	}
}

// someHTTP dials a few connections, of which those are returned that are let in.
func (p *process) someHTTP(t *testing.T) (conns []rawConn) {
	for range idleConns {
		if c, err := p.tryHTTP(p.addr); err == nil {
			conns = append(conns, c)
		}
	}
	t.Logf("%d of %d connections let in", len(conns), idleConns)
	return conns
}

// callFlood makes calls over a few connections, without heed of any window, and holds
// them for a while.
func callFlood(t *testing.T, p *process, calls int, headers, body []byte) {
	conns := p.someHTTP(t)
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			for n := range calls / idleConns {
				id := uint32(2*n + 1)
				b := append(split(id, headers, flagEndHeaders), frame(frameData, flagEndStream, id, body)...)
				if c.write(b) < len(b) {
					return
				}
			}
		})
		wg.Go(func() { // the answers
			for {
				if _, _, err := c.next(); err != nil {
					return
				}
			}
		})
	}
	time.Sleep(hold)
	for _, c := range conns {
		_ = c.Close()
	}
	wg.Wait()
}

// requestFlood makes Requests that it gives up long before the far side answers.
func requestFlood(t *testing.T, p *process) {
	sendAll(t, p, "2 ms", floodRequests, 50, 2*time.Millisecond, func(n int) *networkservice.NetworkServiceRequest {
		return lbtest.NewRequest(fmt.Sprintf("given-up-%d", n), serviceName, silentName)
	}, grpc.WaitForReady(true))
}

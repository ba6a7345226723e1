package hostile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/race"
)

// httpFault is a call that is wrong in what surrounds the message.
type httpFault struct {
	name   string
	method string
	header map[string]string
	body   []byte
	// want is what has to come: a gRPC status code, or an HTTP status where the
	// server does not take it for gRPC at all.
	want string
}

// httpFaults are answered by gRPC itself, before anything of ours sees them.
func httpFaults(t *testing.T) []httpFault {
	good := message(wireOf(t, goodRequest("http")))
	pressed := bytes.Clone(good)
	pressed[0] = 1
	lying := bytes.Clone(good)
	binary.BigEndian.PutUint32(lying[1:], uint32(len(good))+100)
	endless := bytes.Clone(good)
	binary.BigEndian.PutUint32(endless[1:], 1<<32-1)
	return []httpFault{
		{name: "content type text/plain", header: map[string]string{"Content-Type": "text/plain"}, body: good, want: "HTTP 415"},
		{name: "no content type", header: map[string]string{"Content-Type": ""}, body: good, want: "HTTP 415"},
		{name: "content type of another form", header: map[string]string{"Content-Type": "application/grpc+json"}, body: good, want: "grpc-status 0"},
		{name: "GET", method: http.MethodGet, want: "HTTP 405"},
		{name: "unknown compression", header: map[string]string{"Grpc-Encoding": "middle-out"}, body: pressed, want: "grpc-status 12"},
		{name: "compressed, it does not say how", body: pressed, want: "grpc-status 13"},
		{name: "absurd timeout", header: map[string]string{"Grpc-Timeout": "99999999999H"}, body: good, want: "HTTP 400"},
		{name: "no timeout", header: map[string]string{"Grpc-Timeout": "never"}, body: good, want: "HTTP 400"},
		{name: "timeout of nothing", header: map[string]string{"Grpc-Timeout": "0n"}, body: good, want: "grpc-status 4"},
		{name: "binary header that is none", header: map[string]string{"X-Bin": "%%%"}, body: good, want: "HTTP 400"},
		{name: "message cut short", body: lying, want: "grpc-status 13"},
		{name: "length of 4 GiB", body: endless, want: "grpc-status 8"},
		{name: "two messages", body: append(bytes.Clone(good), good...), want: "grpc-status 0"},
		// gRPC waits for a message that the caller has said will not come, until the
		// caller leaves. It is one of the calls that a connection may have.
		{name: "no message", want: nothing},
		{name: "frame of 3 bytes", body: good[:3], want: "grpc-status 13"},
	}
}

func TestBadHTTPIsAnswered(t *testing.T) {
	t.Parallel()
	p := start(t, newNeighbours(t), build(t, race.Enabled))
	config := tlsconfig.MTLSClientConfig(p.source, p.source, tlsconfig.AuthorizeAny())
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	answered := newTable("fault around the message", "answered with")
	for _, fault := range httpFaults(t) {
		got, err := fault.send(t.Context(), client, p.addr)
		if errors.Is(err, context.DeadlineExceeded) {
			got, err = nothing, nil
		}
		require.NoError(t, err, fault.name)
		answered.add(fault.name, got)
	}
	t.Logf("\n%s", answered)
	for _, fault := range httpFaults(t) {
		require.Contains(t, answered.rows[fault.name], fault.want, fault.name)
	}
	p.requireWell(t)
}

func (f *httpFault) send(ctx context.Context, client *http.Client, addr string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	method := f.method
	if method == "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, "https://"+addr+networkService+"Request", bytes.NewReader(f.body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	for name, value := range f.header {
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "HTTP " + strings.Fields(response.Status)[0], nil
	}
	return "grpc-status " + response.Header.Get("Grpc-Status") + response.Trailer.Get("Grpc-Status"), nil
}

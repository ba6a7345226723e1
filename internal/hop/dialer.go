package hop

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A Dialer connects to one address: host:port, or unix:///path.
type Dialer = func(ctx context.Context, addr string) (net.Conn, error)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// bounded ends each attempt at one address by itself: TCP, TLS and HTTP/2 preface
// together take no longer than limit. gRPC's own bound grows with the backoff, so
// that a black hole costs the more the longer it lasts.
//
// The context of a dial is that of the attempt, and gRPC ends it when the attempt
// has come to its end, good or bad: what is left of it then tells whether the
// handshakes have got through.
func bounded(dial Dialer, limit time.Duration) Dialer {
	return func(attempt context.Context, addr string) (net.Conn, error) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(attempt, limit)
		defer cancel()
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		// The connection itself is returned, and not one around it: gRPC sets
		// TCP_USER_TIMEOUT on nothing else.
		timer := time.AfterFunc(limit-time.Since(began), func() {
			if attempt.Err() == nil && conn.SetDeadline(longAgo) != nil {
				_ = conn.Close()
			}
		})
		context.AfterFunc(attempt, func() { timer.Stop() })
		return conn, nil
	}
}

// dialAddress is the Dialer of the process. Like gRPC's own it leaves the times of
// TCP keepalives to the system.
func dialAddress(ctx context.Context, addr string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}}
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		return dialer.DialContext(ctx, "unix", path)
	}
	return dialer.DialContext(ctx, "tcp", addr)
}

// viaProxy tells whether the environment (HTTPS_PROXY, NO_PROXY) puts an HTTP proxy
// before a target. gRPC dials it by itself then, within its own bound.
func viaProxy(target string) bool {
	_, host, ok := strings.Cut(target, ":///")
	if !ok || strings.HasPrefix(target, "unix:") {
		return false
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: host}})
	return err != nil || proxy != nil
}

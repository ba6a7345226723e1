package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Addresses are taken apart here and not by net/url, which reads the shipped
// "registry:5002" as scheme and path and refuses "10.0.0.1:5002".

// upstreamURL reads where to connect to: host:port, tcp://host:port,
// dns:///host:port or unix:///path. All but the last become tcp://host:port.
// Host names are kept as they are.
func upstreamURL(value string) (*url.URL, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return nil, errEmpty
	}
	scheme, rest := splitScheme(value)
	switch scheme {
	case "unix":
		return unixURL(rest)
	case "", "tcp":
	case "dns":
		// gRPC's form: an empty authority, then the name.
		rest = strings.TrimPrefix(rest, "/")
	default:
		return nil, fmt.Errorf("scheme %q is neither tcp nor unix", scheme)
	}
	host, err := hostPort(strings.TrimSuffix(rest, "/"))
	switch {
	case err != nil:
		return nil, err
	case strings.HasPrefix(host, ":"):
		return nil, errors.New("has no host")
	case strings.HasSuffix(host, ":0"):
		return nil, errors.New("has no port")
	}
	return &url.URL{Scheme: "tcp", Host: host}, nil
}

// listenURL reads where to listen: tcp://[host]:port or unix:///path. Port 0
// means any free one.
func listenURL(value string) (*url.URL, error) {
	scheme, rest := splitScheme(value)
	switch scheme {
	case "unix":
		return unixURL(rest)
	case "tcp":
		host, err := hostPort(strings.TrimSuffix(rest, "/"))
		if err != nil {
			return nil, err
		}
		return &url.URL{Scheme: "tcp", Host: host}, nil
	default:
		return nil, errors.New("begins with neither tcp:// nor unix://")
	}
}

// splitScheme cuts "scheme://" off; "unix:path" is the one form without slashes.
func splitScheme(value string) (scheme, rest string) {
	if scheme, rest, ok := strings.Cut(value, "://"); ok {
		return scheme, rest
	}
	if rest, ok := strings.CutPrefix(value, "unix:"); ok {
		return "unix", rest
	}
	return "", value
}

// unixURL wants an absolute path: what a relative one means depends on who
// reads it, since "unix://a/b" is the host a for some.
func unixURL(path string) (*url.URL, error) {
	switch {
	case !strings.HasPrefix(path, "/"):
		return nil, errors.New("has no absolute path, as in unix:///run/x.sock")
	case strings.HasSuffix(path, "/"), strings.ContainsRune(path, 0):
		return nil, errors.New("names no socket file")
	}
	return &url.URL{Scheme: "unix", Path: path}, nil
}

// hostPort checks host:port, where host may be empty, a name or an address, and
// puts an IPv6 address into the brackets it may lack.
func hostPort(value string) (string, error) {
	colon := strings.LastIndexByte(value, ':')
	if colon < 0 {
		return "", errors.New("has no port")
	}
	host, port := value[:colon], value[colon+1:]
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("port %q is not a number up to 65535", port)
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(host, ":") {
			return "", fmt.Errorf("[%s is not an IPv6 address in brackets", inner)
		}
	}
	if strings.Contains(host, ":") {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", fmt.Errorf("%q is not an IPv6 address", host)
		}
	} else if !isHost(host) {
		return "", fmt.Errorf("%q is not a host", host)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// isHost is lenient: an underscore is no part of a host name, but of names that
// resolvers answer.
func isHost(host string) bool {
	for _, r := range host {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (r < '0' || '9' < r) && !strings.ContainsRune("-._", r) {
			return false
		}
	}
	return true
}

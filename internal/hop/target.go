package hop

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// nameScheme is that of targets whose host is a name. The resolver behind it is
// ours (resolver.go).
const nameScheme = "dns"

// Target turns the URL of an endpoint or a registry into a gRPC target.
//
// Of a host name every address is tried, and it is looked up again when none
// works; an address literal needs no resolver. The shipped manifests write registry:5002 without a scheme, which
// a URL parser takes for scheme "registry" and opaque part "5002".
func Target(u *url.URL) (string, error) {
	if u == nil {
		return "", fmt.Errorf("hop: no URL")
	}
	switch {
	case u.Scheme == "unix":
		return u.String(), nil
	case u.Scheme == "inode":
		return "", fmt.Errorf("hop: %s: a file descriptor cannot be reached from here", u.Redacted())
	case u.Host != "":
		return hostTarget(u, u.Host)
	case u.Opaque != "":
		return hostTarget(u, u.Scheme+":"+u.Opaque)
	}
	return "", fmt.Errorf("hop: %s: neither host nor path", u.Redacted())
}

func hostTarget(u *url.URL, hostport string) (string, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil || port == "" {
		return "", fmt.Errorf("hop: %s: want host:port", u.Redacted())
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		// The zone of a link-local address stands behind a percent sign.
		return "passthrough:///" + strings.ReplaceAll(hostport, "%", "%25"), nil
	}
	return nameScheme + ":///" + hostport, nil
}

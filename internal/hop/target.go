package hop

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"google.golang.org/grpc/resolver/dns"
)

// minResolution replaces gRPC's pause of 30 s between two look-ups of one name:
// a balancer that moves would otherwise be looked for only after the grace.
const minResolution = time.Second

func init() { dns.SetMinResolutionInterval(minResolution) }

// Target turns the URL of an endpoint or a registry into a gRPC target.
//
// A host name is handed to gRPC's own resolver, which tries every address
// behind it and looks again when none works; an address literal needs no
// resolver. The shipped manifests write registry:5002 without a scheme, which
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
		return "passthrough:///" + hostport, nil
	}
	return "dns:///" + hostport, nil
}

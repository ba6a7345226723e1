package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"github.com/networkservicemesh/sdk/pkg/tools/grpcutils"
	"github.com/networkservicemesh/sdk/pkg/tools/listenonurl"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
)

const (
	// Any process that reaches the socket may connect, whatever its user: in a
	// pod they differ, and who is let in is decided by the certificate.
	socketMode = 0o777
	folderMode = 0o755
)

// listen opens all urls or none.
func listen(urls []url.URL) ([]net.Listener, error) {
	var listeners []net.Listener
	for i := range urls {
		l, err := listenOn(&urls[i])
		if err != nil {
			for _, opened := range listeners {
				_ = opened.Close()
			}
			return nil, fmt.Errorf("app: listen on %s: %w", &urls[i], err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func listenOn(u *url.URL) (net.Listener, error) {
	if u.Scheme == "tcp" {
		return net.Listen("tcp", u.Host)
	}
	if err := clearSocket(u.Path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", u.Path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(u.Path, socketMode); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// clearSocket makes the folder of a socket and removes the socket that a process
// left there which could not end properly. Anything else in its place is not
// ours to remove.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(filepath.Dir(path), folderMode)
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file that is no socket")
	}
	return os.Remove(path)
}

// publicURL is where others in the domain reach us: the first TCP listener, or
// else the first of all. If that one listens on every address, one of those of
// this machine stands for them.
func publicURL(ctx context.Context, listeners []net.Listener) *url.URL {
	u := grpcutils.AddressToURL(listeners[0].Addr())
	for _, l := range listeners {
		if l.Addr().Network() == "tcp" {
			u = grpcutils.AddressToURL(l.Addr())
			break
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		log.FromContext(ctx).Warnf("app: addresses of this machine: %v", err)
		return u
	}
	return listenonurl.GetPublicURL(addrs, u)
}

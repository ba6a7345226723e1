package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/networkservicemesh/api/pkg/api/registry"
	"github.com/networkservicemesh/sdk/pkg/tools/interdomain"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

var errLookup = errors.New("directory: the look-up failed")

type question struct {
	way  Way
	name string
}

// ask makes one look-up for all who want it at the same time. It outlives the
// one who came first, for the others' sake.
func (d *Directory) ask(ctx context.Context, way Way, endpoint string) (*url.URL, error) {
	client, name := d.local, interdomain.Target(endpoint)
	if way == Outbound {
		if client, name = d.proxy, endpoint; !interdomain.Is(endpoint) {
			return nil, nil
		}
	}
	if u, ok := d.fresh(way, name); ok {
		return u, nil
	}
	result := d.flight.DoChan(way.String()+" "+name, func() (any, error) {
		defer guard.Recover(ctx, "a look-up")
		u, err := find(context.WithoutCancel(ctx), client, name)
		if err == nil {
			d.keep(way, name, u)
		}
		return u, err
	})
	select {
	case r := <-result:
		u, ok := r.Val.(*url.URL)
		if !ok {
			return nil, errLookup // it has panicked
		}
		return u, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// find asks one registry for one name. It returns nil where there is no such
// endpoint, and an error where that could not be established.
func find(ctx context.Context, client registry.NetworkServiceEndpointRegistryClient, name string) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	stream, err := client.Find(ctx, &registry.NetworkServiceEndpointQuery{
		NetworkServiceEndpoint: &registry.NetworkServiceEndpoint{Name: name},
	})
	if err != nil {
		return nil, fmt.Errorf("find: %w", err)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return nil, ended(err)
		}
		// A registry matches parts of names, too.
		if nse := response.GetNetworkServiceEndpoint(); nse.GetName() == name && !response.GetDeleted() {
			u, err := url.Parse(nse.GetUrl())
			if err != nil {
				return nil, fmt.Errorf("find: %w", err)
			}
			return u, nil
		}
	}
}

// ended tells the regular end of a stream from its failure.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("find: %w", err)
}

// fresh returns the answer of a moment ago.
func (d *Directory) fresh(way Way, name string) (*url.URL, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answers.get(question{way, name})
}

func (d *Directory) keep(way Way, name string, u *url.URL) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers.put(question{way, name}, u)
}

// Package mapip exchanges the addresses of this cluster's nodes for those under
// which other domains reach them.
//
// One watch of the map file serves all users. The file is judged by content, so
// the symlink swap of a ConfigMap and a rewrite in place are the same to it. A
// file that is absent, empty or not a map to addresses changes nothing: the last
// good map stays, said once in the log. So does one that is cut off, unless it is
// cut between two lines, or where what is left of an address is one. An explicit
// empty map ({}) is a good one. Of two values for the same key the last counts:
// the file is read with the stock proxy's parser.
//
// An address without a mapping stays as it is. It is never replaced by an empty
// one, and never by anything for as long as a tunnel uses it: a leg keeps the
// addresses that it was given first, until it reselects.
package mapip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"gopkg.in/yaml.v2"
)

// reread is how often the file is looked at when nothing was notified: some
// file systems notify nothing, and the folder may be mounted late.
const reread = 10 * time.Second

// Map is the current content of the map file.
type Map struct {
	path    string
	current atomic.Pointer[map[string]string]
	// unusable is set while the file is not the map that is in use.
	unusable atomic.Bool
	log      log.Logger

	// Used by the watching goroutine alone.
	seen    []byte
	problem string
	loaded  bool
}

// Watch reads the file and follows it until ctx ends. The goroutine is counted
// in wg. What is wrong with the file is logged and never an error. Without a path
// nothing is mapped and nothing watched.
func Watch(ctx context.Context, wg *sync.WaitGroup, path string) *Map {
	if path == "" {
		return Static(nil)
	}
	m := &Map{path: path, log: log.FromContext(ctx).WithField("mapip", path)}
	m.current.Store(&map[string]string{})
	m.read()
	wg.Go(func() { m.follow(ctx) })
	return m
}

// Static makes a map that never changes.
func Static(addresses map[string]string) *Map {
	m := new(Map)
	m.current.Store(&addresses)
	return m
}

// External returns the address under which others know addr: its mapping, or
// addr itself where there is none.
func (m *Map) External(addr string) string {
	if external := (*m.current.Load())[addr]; external != "" {
		return external
	}
	return addr
}

// Len returns how many addresses are mapped.
func (m *Map) Len() int { return len(*m.current.Load()) }

// Unusable tells whether the file cannot be used at the moment, so that the last good
// map stays.
func (m *Map) Unusable() bool { return m.unusable.Load() }

func (m *Map) follow(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		m.log.Warnf("no notifications, reading every %s: %v", reread, err)
		m.loop(ctx, notifications{watch: func() {}})
		return
	}
	defer func() { _ = watcher.Close() }()
	m.loop(ctx, notifications{
		events: watcher.Events,
		errors: watcher.Errors,
		// Adding it again does nothing, or finds a folder that came later.
		watch: func() { _ = watcher.Add(filepath.Dir(m.path)) },
	})
}

// notifications are what is heard of the file's folder. One that is not read
// keeps all others back.
type notifications struct {
	events <-chan fsnotify.Event
	errors <-chan error
	watch  func()
}

func (m *Map) loop(ctx context.Context, n notifications) {
	ticker := time.NewTicker(reread)
	defer ticker.Stop()
	n.watch()
	for {
		// Whatever happened in the folder, the content tells whether it
		// matters: a ConfigMap swaps a link beside the file.
		m.read()
		select {
		case <-ctx.Done():
			return
		case <-n.events:
		case err := <-n.errors:
			// There were more than the kernel keeps, or the folder is another.
			m.log.Debugf("notifications: %v", err)
			n.watch()
		case <-ticker.C:
			n.watch()
		}
	}
}

// read takes over the file if it is good and different.
func (m *Map) read() {
	data, err := os.ReadFile(m.path)
	if err == nil && m.seen != nil && bytes.Equal(data, m.seen) {
		return
	}
	addresses, err := parse(data, err)
	if err != nil {
		m.complain(err)
		return
	}
	m.seen, m.problem, m.loaded = data, "", true
	m.unusable.Store(false)
	m.current.Store(&addresses)
	m.log.Infof("%d addresses mapped", len(addresses))
}

func parse(data []byte, err error) (map[string]string, error) {
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("empty file")
	}
	var addresses map[string]string
	if err := yaml.Unmarshal(data, &addresses); err != nil {
		return nil, fmt.Errorf("not a map of addresses: %w", err)
	}
	if addresses == nil {
		return nil, errors.New("no map in it")
	}
	// In their order, so that the same file is the same error.
	for _, internal := range slices.Sorted(maps.Keys(addresses)) {
		if _, err := netip.ParseAddr(addresses[internal]); err != nil {
			return nil, fmt.Errorf("%q for %s is no address", addresses[internal], internal)
		}
	}
	return addresses, nil
}

// complain says once what is wrong for as long as it stays the same.
func (m *Map) complain(err error) {
	if err.Error() == m.problem {
		return
	}
	m.problem = err.Error()
	m.seen = nil
	// One that has never been there is nobody's fault.
	m.unusable.Store(m.loaded || !errors.Is(err, fs.ErrNotExist))
	if errors.Is(err, fs.ErrNotExist) {
		m.log.Infof("no map file, the last good map stays: %v", err)
		return
	}
	m.log.Warnf("unusable map file, the last good map stays: %v", err)
}

package mapip_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/logtest"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/mapip"
)

const internalIP = "10.0.0.1"

func watch(t *testing.T, path string) *mapip.Map { return watchLogged(t, path, log.Empty()) }

func watchLogged(t *testing.T, path string, logger log.Logger) *mapip.Map {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(log.WithLog(context.Background(), logger))
	t.Cleanup(func() { cancel(); wg.Wait() })
	return mapip.Watch(ctx, &wg, path)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func eventually(t *testing.T, m *mapip.Map, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return m.External(internalIP) == want }, 5*time.Second, 5*time.Millisecond)
}

func TestMap_FollowsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, "10.0.0.1: 1.1.1.1\n")
	m := watch(t, path)
	require.Equal(t, "1.1.1.1", m.External(internalIP), "known from the start")
	require.Equal(t, "10.0.0.2", m.External("10.0.0.2"), "no mapping: as it is")
	require.Empty(t, m.External(""))

	write(t, path, "10.0.0.1: 2.2.2.2\n")
	eventually(t, m, "2.2.2.2")

	next := path + ".next"
	write(t, next, "10.0.0.1: 3.3.3.3\n")
	require.NoError(t, os.Rename(next, path))
	eventually(t, m, "3.3.3.3")

	write(t, path, "{}\n")
	eventually(t, m, internalIP)
}

func TestMap_LastGoodMapStays(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"absent":           func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"empty":            func(t *testing.T, path string) { write(t, path, "") },
		"white space":      func(t *testing.T, path string) { write(t, path, " \n\n") },
		"half-written":     func(t *testing.T, path string) { write(t, path, "10.0.0.1: \"2.2") },
		"not YAML":         func(t *testing.T, path string) { write(t, path, "\x00\x01") },
		"a list":           func(t *testing.T, path string) { write(t, path, "- 10.0.0.1\n") },
		"a map of maps":    func(t *testing.T, path string) { write(t, path, "10.0.0.1: {a: b}\n") },
		"an empty address": func(t *testing.T, path string) { write(t, path, "10.0.0.1: \"\"\n") },
		"no address":       func(t *testing.T, path string) { write(t, path, "10.0.0.1:\n") },
		"cut in a value":   func(t *testing.T, path string) { write(t, path, "10.0.0.1: 2.2") },
		"cut after a key":  func(t *testing.T, path string) { write(t, path, "10.0.0.1: 2.2.2.2\n10.0.0.2:") },
		"cut in a key":     func(t *testing.T, path string) { write(t, path, "10.0.0.1: 2.2.2.2\n10.0") },
		"a host name":      func(t *testing.T, path string) { write(t, path, "10.0.0.1: node.example.com\n") },
		"a comment alone":  func(t *testing.T, path string) { write(t, path, "# addresses\n") },
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path, marker := filepath.Join(folder, "config.yaml"), filepath.Join(folder, "other.yaml")
			write(t, path, "10.0.0.1: 1.1.1.1\n")
			write(t, marker, "10.0.0.1: 8.8.8.8\n")
			lines := logtest.New()
			m, other := watchLogged(t, path, lines), watch(t, marker)
			spoil(t, path)
			for _, later := range []string{"8.8.8.9", "8.8.8.10"} {
				// When a later change beside it has been seen, this one has.
				write(t, marker, "10.0.0.1: "+later+"\n")
				eventually(t, other, later)
			}
			require.Eventually(t, func() bool { return len(lines.All("the last good map stays")) > 0 }, 5*time.Second, 5*time.Millisecond)
			require.Equal(t, "1.1.1.1", m.External(internalIP))
			require.True(t, m.Unusable())
			require.Equal(t, 1, m.Len())
			// Truncating comes before writing, and may have been seen by itself.
			said := lines.All("the last good map stays")
			said = slices.DeleteFunc(said, func(line string) bool { return strings.Contains(line, "empty file") })
			require.LessOrEqual(t, len(said), 1, "%q", said)
			write(t, path, "10.0.0.1: 2.2.2.2\n")
			eventually(t, m, "2.2.2.2")
			require.False(t, m.Unusable())
		})
	}
}

func TestMap_ConfigMapSwap(t *testing.T) {
	folder := t.TempDir()
	for _, version := range []string{"1", "2"} {
		require.NoError(t, os.Mkdir(filepath.Join(folder, version), 0o700))
		write(t, filepath.Join(folder, version, "config.yaml"), "10.0.0.1: "+version+"."+version+".1.1\n")
	}
	data, path := filepath.Join(folder, "..data"), filepath.Join(folder, "config.yaml")
	require.NoError(t, os.Symlink("1", data))
	require.NoError(t, os.Symlink(filepath.Join("..data", "config.yaml"), path))
	m := watch(t, path)
	require.Equal(t, "1.1.1.1", m.External(internalIP))
	require.NoError(t, os.Symlink("2", data+"_tmp"))
	require.NoError(t, os.Rename(data+"_tmp", data))
	eventually(t, m, "2.2.1.1")
}

func TestMap_FileThatComesLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	m := watch(t, path)
	require.Equal(t, internalIP, m.External(internalIP))
	write(t, path, "10.0.0.1: 1.1.1.1\n")
	eventually(t, m, "1.1.1.1")
}

func TestMap_OneLineForAFileThatStaysBad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, "- 1\n")
	lines := logtest.New()
	m := watchLogged(t, path, lines)
	// It is read at each change of the folder.
	for i := range 20 {
		write(t, filepath.Join(filepath.Dir(path), "other"), strconv.Itoa(i))
	}
	next := path + ".next"
	write(t, next, "10.0.0.1: 1.1.1.1\n")
	require.NoError(t, os.Rename(next, path))
	eventually(t, m, "1.1.1.1")
	require.Len(t, lines.All("the last good map stays"), 1, "%q", lines.All(""))
	require.Len(t, lines.All("WARN"), 1)
	require.Contains(t, lines.All("WARN")[0], "unusable map file")
	write(t, next, "10.0.0.1: 1.1\n")
	require.NoError(t, os.Rename(next, path))
	require.Eventually(t, func() bool { return len(lines.All("WARN")) == 2 }, 5*time.Second, 5*time.Millisecond)
	require.Contains(t, lines.All("WARN")[1], `"1.1" for 10.0.0.1 is no address`)
}

// The stock proxy takes the last of two values for the same key.
func TestMap_LastOfTwoValuesCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, "10.0.0.1: 1.1.1.1\n10.0.0.2: 3.3.3.3\n10.0.0.1: 2.2.2.2\n")
	m := watch(t, path)
	require.Equal(t, "2.2.2.2", m.External(internalIP))
	require.Equal(t, "3.3.3.3", m.External("10.0.0.2"))
}

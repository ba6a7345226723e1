package mapip

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/fsnotify/fsnotify"
	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/stretchr/testify/require"
)

func TestLoop_ReadsAgainWhenNotificationsFail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write := func(content string) { require.NoError(t, os.WriteFile(path, []byte(content), 0o600)) }
	write("10.0.0.1: 1.1.1.1\n")
	synctest.Test(t, func(t *testing.T) {
		m := Static(nil)
		m.path, m.log = path, log.Empty()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		failures, watched := make(chan error), 0
		go m.loop(ctx, notifications{errors: failures, watch: func() { watched++ }})
		synctest.Wait()
		require.Equal(t, "1.1.1.1", m.External("10.0.0.1"))
		write("10.0.0.1: 2.2.2.2\n")
		failures <- fsnotify.ErrEventOverflow
		synctest.Wait()
		require.Equal(t, "2.2.2.2", m.External("10.0.0.1"), "at once")
		require.Equal(t, 2, watched)
		failures <- fsnotify.ErrEventOverflow // and the next does not wait either
		cancel()
		synctest.Wait()
	})
}

func FuzzParse(f *testing.F) {
	for _, content := range []string{
		"10.0.0.1: 1.1.1.1\n", "{}", "", "10.0.0.1:", "a: 1.1", "fd00::1: fd00::2\n", "- a", "a: {b: c}", "<<: *x", "&a [*a]", "\x00", "~",
		"a: 1.1.1.1\na: 1.1.1.2", "? a\n: 1.1.1.1", "--- !!map\n", "a: !!binary eA==",
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		addresses, err := parse(content, nil)
		if err != nil {
			require.Nil(t, addresses)
			return
		}
		require.NotNil(t, addresses)
		for _, external := range addresses {
			_, err := netip.ParseAddr(external)
			require.NoError(t, err)
		}
	})
}

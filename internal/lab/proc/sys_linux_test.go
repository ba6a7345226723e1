package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChildrenEndWithAKilledParent(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentLog+"="+log)
	require.NoError(t, parent.Start())
	var child int
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(log)
		n, _ := fmt.Sscan(string(data), &child)
		return err == nil && n == 1 && strings.HasSuffix(string(data), "\n")
	}, patience, 10*time.Millisecond)
	require.False(t, dead(child))
	require.NoError(t, parent.Process.Signal(syscall.SIGKILL))
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool { return dead(child) }, patience, 10*time.Millisecond)
}

func TestUsage(t *testing.T) {
	child, lines, _ := start(t, `i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo busy; exec sleep 1000`)
	before, ok := child.Usage()
	require.True(t, ok)
	require.Positive(t, before.Memory)
	require.Less(t, before.Memory, int64(64<<20))
	require.Equal(t, "busy", <-lines)
	after, ok := child.Usage()
	require.True(t, ok)
	require.Greater(t, after.CPU, before.CPU)
	require.Less(t, after.CPU, time.Minute)
	child.Kill()
	_, ok = child.Usage()
	require.False(t, ok)
}

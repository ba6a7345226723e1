package proc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
)

// TestMain lets this binary be a parent that gets killed, too.
func TestMain(m *testing.M) {
	if log, ok := os.LookupEnv(parentLog); ok {
		beParent(log)
		return
	}
	goleak.VerifyTestMain(m)
}

// parentLog makes this binary a parent that waits to be killed, with a child
// that logs there.
const parentLog = "PROC_TEST_PARENT_LOG"

func beParent(log string) {
	child, err := proc.Start(&proc.Spec{
		Name: "child", Path: "/bin/sh", Args: []string{"-c", "echo $$; exec sleep 1000"},
		Env: []string{"PATH=" + os.Getenv("PATH")}, Log: log,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	<-child.Done()
}

// patience is how long a test waits for what has to happen.
const patience = 10 * time.Second

func start(t *testing.T, script string) (child *proc.Process, lines <-chan string, log string) {
	t.Helper()
	out := make(chan string, 16)
	log = filepath.Join(t.TempDir(), "log")
	child, err := proc.Start(&proc.Spec{
		Name: "child", Path: "/bin/sh", Args: []string{"-c", script},
		Env: []string{"PATH=" + os.Getenv("PATH")}, Log: log,
		OnLine: func(line string) { out <- line },
	})
	require.NoError(t, err)
	t.Cleanup(child.Stop)
	return child, out, log
}

func TestLinesAndLog(t *testing.T) {
	child, lines, log := start(t, `echo one; printf 'two\nthr' >&2; printf 'ee'; exit 3`)
	require.ErrorContains(t, child.Err(), "proc: child ended: exit status 3")
	require.Equal(t, "one", <-lines)
	require.Equal(t, "two", <-lines)
	require.Equal(t, "three", <-lines)
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "one\ntwo\nthree", string(data))
	require.Equal(t, "two\nthree", child.Tail(2))
	require.Equal(t, "one\ntwo\nthree", child.Tail(9))
}

func TestTailCutsLongLines(t *testing.T) {
	child, _, _ := start(t, `printf '%05000d\n' 1`)
	require.Error(t, child.Err())
	require.Less(t, len(child.Tail(1)), 300)
}

func TestKillAsksNobody(t *testing.T) {
	child, lines, log := start(t, `trap 'echo asked' TERM; echo ready; while :; do sleep 1; done`)
	require.Equal(t, "ready", <-lines)
	child.Kill()
	require.ErrorContains(t, child.Err(), "signal: killed")
	require.Empty(t, lines)

	next, err := proc.Start(&proc.Spec{Name: "next", Path: "/bin/echo", Args: []string{"next"}, Log: log, Append: true})
	require.NoError(t, err)
	require.ErrorContains(t, next.Err(), "proc: next ended")
	require.Equal(t, "ready\nnext", next.Tail(9))
}

func TestStopEndsTheWholeGroup(t *testing.T) {
	child, lines, _ := start(t, `sleep 1000 & echo $!; wait`)
	var grandchild int
	select {
	case line := <-lines:
		var err error
		grandchild, err = strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "the child says nothing")
	}
	select {
	case <-child.Done():
		require.FailNow(t, "ended by itself")
	default:
	}
	child.Stop()
	child.Stop()
	require.Error(t, child.Err())
	// An orphan is reaped by whoever inherits it, which may take a moment, and
	// a container's first process may never do it: a zombie is dead, too.
	require.Eventually(t, func() bool { return dead(grandchild) }, patience, 10*time.Millisecond)
}

func dead(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestFailures(t *testing.T) {
	_, err := proc.Start(&proc.Spec{Name: "nothing", Path: "/does/not/exist", Log: filepath.Join(t.TempDir(), "log")})
	require.ErrorContains(t, err, "proc: nothing: ")
	require.ErrorContains(t, proc.Build(t.Context(), t.TempDir(), "out"), "proc: go build: ")
	_, err = proc.ModuleDir(t.Context(), "example.com/not/here")
	require.ErrorContains(t, err, "example.com/not/here")
}

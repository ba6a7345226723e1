//go:build unix

package sdksuite

import (
	"os/exec"
	"syscall"
	"time"
)

// killGroup makes the end of the context end the test binary too: the go
// command that is killed outright does not end what it started.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// Bounds the wait for pipes that an orphan may still hold.
	cmd.WaitDelay = 5 * time.Second
}

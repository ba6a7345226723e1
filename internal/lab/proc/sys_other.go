//go:build unix && !linux

package proc

import "syscall"

// attributes give a child a group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Usage is known on Linux only.
func (*Process) Usage() (Usage, bool) { return Usage{}, false }

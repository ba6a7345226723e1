// Package proc runs the child processes of the lab.
//
// A Process owns its process group: Stop ends all of it, politely first, Kill
// without a word, and either returns when it is gone and its output has been
// read. On Linux a child also ends when this process is killed. Output goes to a
// log file and, line by line, to a callback.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end itself after SIGTERM. The
// proxy promises to do so in under 10 s.
const stopGrace = 10 * time.Second

// maxLine bounds what is held of a line that does not end.
const maxLine = 64 << 10

// maxTailLine is enough of a line to see what it is about.
const maxTailLine = 240

// Spec describes a process.
type Spec struct {
	Name   string // for messages
	Path   string
	Args   []string
	Env    []string
	Dir    string
	Log    string            // path of the log file
	Append bool              // to that file, for a process that comes after another
	OnLine func(line string) // called from one goroutine; may be nil
}

// Process is a running child.
type Process struct {
	spec Spec
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed

	stopOnce sync.Once
}

// Start starts the process.
func Start(spec *Spec) (*Process, error) {
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if spec.Append {
		flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	logFile, err := os.OpenFile(spec.Log, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("proc: %s: %w", spec.Name, err)
	}
	p := &Process{spec: *spec, done: make(chan struct{})}
	output := &lineWriter{file: logFile, onLine: spec.OnLine}
	p.cmd = exec.Command(spec.Path, spec.Args...)
	p.cmd.Env, p.cmd.Dir = spec.Env, spec.Dir
	p.cmd.Stdout, p.cmd.Stderr = output, output
	// A group of its own: Ctrl-C on the terminal reaches the lab only, which
	// then ends the children in order.
	p.cmd.SysProcAttr = attributes()
	p.cmd.WaitDelay = stopGrace
	started := make(chan error)
	go func() {
		defer close(p.done)
		defer func() { _ = logFile.Close() }()
		// The thread that starts a child has to live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			output.flush()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("proc: %s: %w", spec.Name, err)
	}
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how it ended. Call it after Done.
func (p *Process) Err() error {
	<-p.done
	if p.err == nil {
		return fmt.Errorf("proc: %s ended", p.spec.Name)
	}
	return fmt.Errorf("proc: %s ended: %w", p.spec.Name, p.err)
}

// Stop ends the process group with SIGTERM, and with SIGKILL what is left of it
// after the grace. It may be called again.
func (p *Process) Stop() {
	p.stopOnce.Do(func() {
		timer := time.NewTimer(stopGrace)
		defer timer.Stop()
		p.signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-timer.C:
		}
		p.signal(syscall.SIGKILL)
	})
	<-p.done
}

// Kill ends the process group with SIGKILL, as a node does that loses power.
func (p *Process) Kill() {
	p.stopOnce.Do(func() { p.signal(syscall.SIGKILL) })
	<-p.done
}

// signal reaches the whole group; one that is gone already is no error.
func (p *Process) signal(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }

// Tail returns the last lines of the log.
func (p *Process) Tail(lines int) string { return Tail(p.spec.Log, lines) }

// Name is the name for messages.
func (p *Process) Name() string { return p.spec.Name }

// Tail returns the last lines of a file, long ones cut short, or why it cannot.
func Tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		if len(line) > maxTailLine {
			all[i] = strings.ToValidUTF8(line[:maxTailLine], "") + "…"
		}
	}
	return strings.Join(all, "\n")
}

// Build compiles the main package in dir to out. ctx bounds it.
func Build(ctx context.Context, dir, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, ".")
	cmd.Dir = dir
	cmd.WaitDelay = stopGrace
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("proc: go build: %w\n%s", err, bytes.TrimSpace(text))
	}
	return nil
}

// ModuleDir returns the root of the given module, which has to be that of the
// working directory or known to it.
func ModuleDir(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.WaitDelay = stopGrace
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("proc: go list -m %s (run it inside the checkout): %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// lineWriter copies to a file and hands on whole lines.
type lineWriter struct {
	file   io.Writer
	onLine func(string)
	rest   []byte
}

func (w *lineWriter) Write(data []byte) (int, error) {
	n, err := w.file.Write(data)
	if w.onLine == nil {
		return n, err
	}
	w.rest = append(w.rest, data...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found && len(w.rest) < maxLine {
			return n, err
		}
		w.onLine(string(line))
		w.rest = rest
	}
}

func (w *lineWriter) flush() {
	if len(w.rest) > 0 && w.onLine != nil {
		w.onLine(string(w.rest))
		w.rest = nil
	}
}

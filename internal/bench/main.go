// The bench measures what a refresh and a leg cost this proxy, beside the SDK's
// own chain and beside the least that any proxy can do: CPU time, memory,
// connections, handshakes and events. All three run as processes over real
// mutual TLS on loopback; only their own process is counted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/floor"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/report"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/run"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/stockproxy"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/telemetry"
)

const (
	module = "github.com/networkservicemesh/cmd-nsmgr-proxy"
	// buildTimeout bounds a build from an empty cache on a slow machine.
	buildTimeout = 10 * time.Minute
)

// Exit codes.
const (
	done    = 0
	failed  = 1 // a run failed, or a check
	misused = 2 // wrong flags
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 {
		if part := partOf(os.Args[1]); part != nil {
			if err := part(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(failed) //nolint:gocritic,forbidigo // this is a main, and nothing is left that stop would undo
			}
			return
		}
	}
	os.Exit(bench(ctx, os.Args[1:], os.Stdout, os.Stderr)) //nolint:forbidigo // this is a main
}

// partOf returns what this binary is if its first argument says so: a proxy, with
// profiles as ours has them, or the far side.
func partOf(command string) func(context.Context) error {
	switch command {
	case floor.Command:
		return profiled(floor.Run)
	case stockproxy.Command:
		return profiled(stockproxy.Run)
	case neighbours.FarCommand:
		return neighbours.RunFar
	default:
		return nil
	}
}

func profiled(proxy func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		stop, err := telemetry.Profiles(log.WithLog(ctx, log.Empty()), os.Getenv("NSM_PPROF_LISTEN_ON"))
		if err != nil {
			return err
		}
		defer stop()
		return proxy(ctx)
	}
}

// bench returns the exit code.
func bench(ctx context.Context, args []string, out, errOut io.Writer) int {
	s, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return done
	case err != nil:
		return misused
	}
	results, err := s.results(ctx, errOut)
	if err != nil {
		_, _ = fmt.Fprintln(errOut, err)
		return failed
	}
	if err = s.show(results, out, errOut); err != nil {
		_, _ = fmt.Fprintln(errOut, err)
		return failed
	}
	if s.check {
		if err = check(results); err != nil {
			_, _ = fmt.Fprintln(errOut, err)
			return failed
		}
		_, _ = fmt.Fprintln(errOut, "every count is as it should be")
	}
	return done
}

// results are those of earlier runs, and then those measured now.
func (s *settings) results(ctx context.Context, errOut io.Writer) ([]*run.Result, error) {
	var results []*run.Result
	if s.earlier != "" {
		for path := range strings.SplitSeq(s.earlier, ",") {
			earlier, err := report.Read(path)
			if err != nil {
				return nil, err
			}
			results = append(results, earlier...)
		}
	}
	if len(s.legs) == 0 && len(s.storms) == 0 {
		return results, nil
	}
	programs, remove, err := s.programs(ctx, errOut)
	if err != nil {
		return nil, err
	}
	defer remove()
	measured, err := s.measure(ctx, programs, errOut)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return append(results, measured...), nil
}

// show writes what was asked for.
func (s *settings) show(results []*run.Result, out, errOut io.Writer) error {
	table := out
	if s.json {
		table = errOut
		if err := report.JSON(out, results); err != nil {
			return err
		}
	}
	report.Table(table, results)
	if s.plot != "" && len(results) > 0 {
		return report.Save(s.plot, results)
	}
	return nil
}

// programs builds what is measured. remove removes it.
func (s *settings) programs(ctx context.Context, errOut io.Writer) (programs *run.Programs, remove func(), err error) {
	remove = func() {}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("bench: %w", err)
	}
	if s.proxy != "" {
		return &run.Programs{Ours: s.proxy, Self: self}, remove, nil
	}
	dir, err := os.MkdirTemp("", "nsmgr-proxy-build-")
	if err != nil {
		return nil, nil, fmt.Errorf("bench: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	programs = &run.Programs{Ours: filepath.Join(dir, "nsmgr-proxy"), Self: self}
	_, _ = fmt.Fprintln(errOut, "building nsmgr-proxy from the tree")
	if err = build(ctx, programs.Ours); err != nil {
		remove()
		return nil, nil, err
	}
	return programs, remove, nil
}

func build(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	dir, err := proc.ModuleDir(ctx, module)
	if err != nil {
		return err
	}
	return proc.Build(ctx, dir, to)
}

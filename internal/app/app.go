// Package app is the process: what it is made of, in which order that starts,
// and how it ends.
//
// Under failure: a fault in the configuration, or an address that cannot be
// listened on, ends the process with status 1 and the reason on its error
// output. What is merely not there yet, the Workload API first of all, is waited
// for. On SIGTERM, SIGINT, SIGHUP or SIGQUIT it ends within ten seconds with
// status 0, whatever its peers do.
package app

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/config"
)

// command is what the process calls itself.
const command = "nsmgr-proxy"

const (
	exitOK    = 0
	exitFault = 1
	exitUsage = 2 // as the flag package has it
)

// Main runs the process until a signal or the end of ctx, and returns its exit
// status. args are those after the program's name. Logs go to errOut.
func Main(ctx context.Context, args, environ []string, out, errOut io.Writer) int {
	if len(args) > 0 {
		return answer(args, out, errOut)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()

	c, warnings, err := config.FromEnv(environ)
	if err == nil {
		err = run(ctx, c, warnings, errOut)
	}
	if err != nil {
		_, _ = fmt.Fprintln(errOut, err)
		return exitFault
	}
	return exitOK
}

// answer answers a question on the command line.
func answer(args []string, out, errOut io.Writer) int {
	var err error
	switch {
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-h"):
		err = usage(out)
	case len(args) == 1 && args[0] == "--version":
		_, err = fmt.Fprintln(out, command, version())
	default:
		_, _ = fmt.Fprintf(errOut, "%s: unknown argument %q; see --help\n", command, args)
		return exitUsage
	}
	if err != nil {
		_, _ = fmt.Fprintf(errOut, "%s: %v\n", command, err)
		return exitFault
	}
	return exitOK
}

func usage(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "Usage: %s [--help | --version]\n\nWithout an argument it runs. "+
		"It is configured by its environment:\n\n", command); err != nil {
		return err
	}
	return config.Usage(out)
}

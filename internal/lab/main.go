// The lab runs two whole NSM domains on this machine, without root, Kubernetes
// or anything installed, and puts a balancer between their nsmgr-proxies that
// cuts what is idle. It shows what a client sees, and exits with 0 only if the
// event contract held. With --soak it lets everything go wrong that can.
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
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/proc"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/report"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/scenario"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/stockproxy"
)

const (
	module = "github.com/networkservicemesh/cmd-nsmgr-proxy"
	// buildTimeout bounds a build from an empty cache on a slow machine.
	buildTimeout = 10 * time.Minute
	// shortestRefresh is a fifth of the shortest lifetime of tokens that keeps a
	// registration alive.
	shortestRefresh = 15 * time.Second
	// shortestSoak has room for a fault or two.
	shortestSoak = 20 * time.Second
)

// Exit codes.
const (
	held    = 0 // the contract held
	broken  = 1 // it did not, or a run failed
	misused = 2 // wrong flags
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == stockproxy.Command {
		if err := stockproxy.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(broken) //nolint:gocritic // nothing is left that stop would undo
		}
		return
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the flags.
type settings struct {
	idle, lasts time.Duration
	refresh     time.Duration
	connections int
	stock, both bool
	json        bool
	logs        string
	proxy       string
	soak        time.Duration
	seed        uint64
}

func parse(args []string, errOut io.Writer) (*settings, error) {
	s := new(settings)
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.DurationVar(&s.idle, "idle", 8*time.Second, "cut connections after this long without payload")
	flags.DurationVar(&s.lasts, "for", 52*time.Second, "how long the idle phase lasts")
	flags.DurationVar(&s.refresh, "refresh", 0, "refresh this often, 15s or more (default twice the limit)")
	flags.IntVar(&s.connections, "connections", 1, "how many connections the client has")
	flags.BoolVar(&s.stock, "stock", false, "run the SDK's own chain in the place of ours")
	flags.BoolVar(&s.both, "both", false, "run the SDK's chain first, then ours, and compare")
	flags.BoolVar(&s.json, "json", false, "write a summary for machines, and nothing else, to stdout")
	flags.StringVar(&s.logs, "keep-logs", "", "keep the logs in this `folder`")
	flags.StringVar(&s.proxy, "proxy", "", "run this nsmgr-proxy `binary` instead of building one")
	flags.DurationVar(&s.soak, "soak", 0, "instead of the usual, random faults for this long")
	flags.Uint64Var(&s.seed, "seed", 1, "what the faults of a soak are drawn from")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("lab: unexpected argument %q", flags.Arg(0))
	case s.idle < time.Second:
		err = fmt.Errorf("lab: --idle %s: want 1s or more", s.idle)
	case s.refresh != 0 && s.refresh < shortestRefresh:
		err = fmt.Errorf("lab: --refresh %s: want %s or more", s.refresh, shortestRefresh)
	case s.lasts < 0:
		err = fmt.Errorf("lab: --for %s: want 0 or more", s.lasts)
	case s.soak != 0 && s.soak < shortestSoak:
		err = fmt.Errorf("lab: --soak %s: want %s or more", s.soak, shortestSoak)
	case s.connections < 1:
		err = fmt.Errorf("lab: --connections %d: want 1 or more", s.connections)
	case s.stock && s.both:
		err = errors.New("lab: --stock and --both exclude each other")
	}
	if err != nil {
		fmt.Fprintln(errOut, err)
	}
	return s, err
}

// run returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	s, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return held
	case err != nil:
		return misused
	}
	// With --json the story goes to stderr, so that stdout is JSON alone.
	story := out
	if s.json {
		story = errOut
	}
	live := &report.Live{Out: story, Color: isTerminal(story)}

	var summaries []*scenario.Summary
	for _, name := range s.runs() {
		summary, err := runOne(ctx, s, name, live)
		if err != nil {
			fmt.Fprintln(errOut, "lab:", name+":", err)
			return broken
		}
		summaries = append(summaries, summary)
	}
	live.Text("")
	report.Table(story, summaries)
	if s.json {
		if err := report.JSON(out, summaries); err != nil {
			fmt.Fprintln(errOut, err)
			return broken
		}
	}
	live.Text("")
	last := summaries[len(summaries)-1]
	if !last.Held && last.Name == ours {
		_, _ = fmt.Fprintln(errOut, last.Logs)
	}
	live.Text(closing(s, summaries))
	if last.Held {
		return held
	}
	return broken
}

const (
	stock = "stock"
	ours  = "ours"
)

// runs names the runs in their order. The last one decides the exit code.
func (s *settings) runs() []string {
	switch {
	case s.both:
		return []string{stock, ours}
	case s.stock:
		return []string{stock}
	default:
		return []string{ours}
	}
}

func runOne(ctx context.Context, s *settings, name string, live *report.Live) (*scenario.Summary, error) {
	options := &scenario.Options{
		Name:        name,
		Idle:        s.idle,
		For:         s.lasts,
		Connections: s.connections,
		Refresh:     s.refresh,
		LogDir:      s.logs,
		Soak:        s.soak,
		Seed:        s.seed,
	}
	switch {
	case name == stock:
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("lab: %w", err)
		}
		options.ProxyPath, options.ProxyArgs = self, []string{stockproxy.Command}
	case s.proxy != "":
		options.ProxyPath = s.proxy
	default:
		dir, err := os.MkdirTemp("", "nsmgr-proxy-build-")
		if err != nil {
			return nil, fmt.Errorf("lab: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		options.ProxyPath = filepath.Join(dir, "nsmgr-proxy")
		live.Text("building nsmgr-proxy from the tree")
		if err := build(ctx, options.ProxyPath); err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf("idle limit %s for %s", s.idle, s.lasts)
	if s.soak > 0 {
		text = fmt.Sprintf("soak of %s, seed %d, idle limit %s", s.soak, s.seed, s.idle)
	}
	live.Heading(name, fmt.Sprintf("%s, %d connection(s), refresh every %s", text, s.connections, options.RefreshInterval()))
	return scenario.Run(ctx, options, live)
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

func closing(s *settings, summaries []*scenario.Summary) string {
	last := summaries[len(summaries)-1]
	text := last.Name + ": the contract held."
	if !last.Held {
		text = last.Name + ": the contract did NOT hold."
	}
	if s.both {
		first := summaries[0]
		if first.Held {
			return text + " Stock showed no fault this time."
		}
		return text + fmt.Sprintf(" Stock showed the fault: %d false DOWN for %d cuts.", first.DownFalse, first.Cuts)
	}
	return text
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

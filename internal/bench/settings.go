package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/run"
)

const (
	// enough is how many refreshes make a figure: the system counts CPU time in
	// 10 ms, and the floor needs half a millisecond for each.
	enough = 2000
	// fewestRounds lets what happens at the first refresh alone weigh little.
	fewestRounds = 3
	// checkedLegs and checkedRounds are what a check does: what goes wrong with
	// each refresh is seen after one, with each leg with a few.
	checkedLegs, checkedRounds = 50, 3
	mostCallers                = 1000
	// stormLegs and stormCallers are a storm's unless other numbers are asked for, and
	// burstLegs is how many subscribers join at once.
	stormLegs, burstLegs, stormCallers = 5000, 1000, 50
	// stockLegs is as many as the SDK's chain can stand in a storm: each takes half a
	// MiB and a connection of its own, and a Request the more CPU the more there are.
	stockLegs = 500
)

// settings are the flags.
type settings struct {
	legs     []int
	rounds   int
	callers  int
	repeat   int
	idle     time.Duration
	subjects []run.Subject
	modes    []load.Mode
	roles    []neighbours.Role
	storms   []run.Storm
	limit    string
	check    bool
	json     bool
	plot     string
	earlier  string
	proxy    string
	profiles string
}

func parse(args []string, errOut io.Writer) (*settings, error) {
	s := new(settings)
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	legs := flags.String("legs", "300",
		"how many legs; several `numbers`, comma-separated, are measured in turn (default 5000 in storms, 1000 subscribers)")
	flags.IntVar(&s.rounds, "rounds", 0, "how often each leg is refreshed (default as often as gives a figure)")
	flags.IntVar(&s.callers, "callers", 8, "calls at the same time (default 50 in storms)")
	flags.IntVar(&s.repeat, "repeat", 1, "measure all of it so often, and take medians")
	flags.DurationVar(&s.idle, "idle", 0, "measure the CPU time of this long without a call, too")
	only := flags.String("only", "floor,stock,ours", "what to measure")
	mode := flags.String("mode", "shared,redial", "one downstream connection for all legs, or one each that is dialled again at each refresh")
	role := flags.String("role", "outbound", "outbound, inbound or both, comma-separated")
	storm := flags.String("storm", "", "measure storms instead: some of cut,establish,subscribe")
	flags.StringVar(&s.limit, "memory-limit", "", "measure ours again with this `GOMEMLIMIT`, such as 90MiB")
	flags.BoolVar(&s.check, "check", false, "a small run that fails on wrong counts, and never on a time")
	flags.BoolVar(&s.json, "json", false, "write the results for machines, and nothing else, to stdout")
	flags.StringVar(&s.plot, "plot", "", "draw CPU and memory against the number of legs into this `file`, as SVG")
	flags.StringVar(&s.earlier, "earlier", "",
		"put results of earlier runs, `files` of --json, comma-separated, before these; --legs \"\" measures none")
	flags.StringVar(&s.proxy, "proxy", "", "measure this nsmgr-proxy `binary` instead of building one")
	flags.StringVar(&s.profiles, "profiles", "",
		"write profiles of each run into this `folder`: CPU of refreshes, heap, goroutines, and then of waiting for locks and in general")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	err := errors.Join(
		choose(&s.subjects, "only", *only, run.Subjects()),
		choose(&s.modes, "mode", *mode, []load.Mode{load.Shared, load.Redial}),
		choose(&s.roles, "role", *role, []neighbours.Role{neighbours.Outbound, neighbours.Inbound}),
		s.numbers(*legs),
	)
	if *storm != "" {
		err = errors.Join(err, choose(&s.storms, "storm", *storm, run.Storms()))
		s.stormDefaults(flags)
	}
	if flags.NArg() > 0 {
		err = errors.Join(err, fmt.Errorf("bench: unexpected argument %q", flags.Arg(0)))
	}
	if err != nil {
		_, _ = fmt.Fprintln(errOut, err)
		return nil, err
	}
	if s.check {
		s.legs, s.rounds, s.repeat, s.idle = []int{checkedLegs}, checkedRounds, 1, 0
		s.roles = []neighbours.Role{neighbours.Outbound, neighbours.Inbound}
		s.storms, s.limit = nil, "" // all storms, beside the rest
	}
	return s, nil
}

// stormDefaults takes what is not asked for as a storm wants it.
func (s *settings) stormDefaults(flags *flag.FlagSet) {
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["legs"] {
		s.legs = nil
	}
	if !given["callers"] {
		s.callers = stormCallers
	}
}

func (s *settings) numbers(legs string) error {
	if legs == "" && s.earlier != "" {
		return nil
	}
	for word := range strings.SplitSeq(legs, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return fmt.Errorf("bench: --legs %q: want numbers from 1 on", legs)
		}
		s.legs = append(s.legs, n)
	}
	switch {
	case s.rounds < 0:
		return fmt.Errorf("bench: --rounds %d: want 0 or more", s.rounds)
	case s.callers < 1 || s.callers > mostCallers:
		return fmt.Errorf("bench: --callers %d: want 1 to %d", s.callers, mostCallers)
	case s.repeat < 1:
		return fmt.Errorf("bench: --repeat %d: want 1 or more", s.repeat)
	case s.idle < 0:
		return fmt.Errorf("bench: --idle %s: want 0 or more", s.idle)
	}
	return nil
}

// choose takes the words of a list that are among those allowed, in the order
// of these.
func choose[T ~string](to *[]T, flagName, list string, allowed []T) error {
	words := strings.Split(list, ",")
	for _, word := range words {
		if !slices.Contains(allowed, T(strings.TrimSpace(word))) {
			return fmt.Errorf("bench: --%s %q: want some of %v", flagName, word, allowed)
		}
	}
	for _, one := range allowed {
		if slices.ContainsFunc(words, func(word string) bool { return T(strings.TrimSpace(word)) == one }) {
			*to = append(*to, one)
		}
	}
	return nil
}

// roundsFor is how often each of so many legs is refreshed.
func (s *settings) roundsFor(legs int) int {
	if s.rounds > 0 {
		return s.rounds
	}
	return max(fewestRounds, (enough+legs-1)/legs)
}

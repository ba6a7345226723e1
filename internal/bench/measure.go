package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/networkservicemesh/sdk/pkg/tools/log"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/run"
)

// setting is what the subjects are compared in.
type setting struct {
	legs  int
	role  neighbours.Role
	mode  load.Mode
	storm run.Storm // or none
	limit string    // of memory, or none
	first bool
}

// all are the settings that are asked for.
func (s *settings) all() []setting {
	var all []setting
	add := func(storm run.Storm, legs []int, roles []neighbours.Role, modes []load.Mode) {
		for _, n := range legs {
			for _, role := range roles {
				for _, mode := range modes {
					all = append(all, setting{legs: n, role: role, mode: mode, storm: storm, first: len(all) == 0})
				}
			}
		}
	}
	if len(s.storms) == 0 {
		add("", s.legs, s.roles, s.modes)
		if s.limit != "" {
			for _, one := range all {
				one.limit, one.first = s.limit, false
				all = append(all, one)
			}
		}
	}
	for _, storm := range s.storms {
		legs := s.legs
		switch {
		case len(legs) > 0:
		case storm == run.Subscribe:
			legs = []int{burstLegs}
		default:
			legs = []int{stormLegs}
		}
		add(storm, legs, s.roles, s.modes)
	}
	if s.check {
		for _, storm := range run.Storms() {
			add(storm, s.legs, []neighbours.Role{neighbours.Outbound}, []load.Mode{load.Shared})
		}
	}
	return all
}

// measure runs every subject in every setting, turn about, so often as is asked
// for, and returns the medians, those of one setting one after another.
func (s *settings) measure(ctx context.Context, programs *run.Programs, errOut io.Writer) ([]*run.Result, error) {
	ctx = log.WithLog(ctx, log.Empty()) // the load's parts of the SDK are not what it is about
	all := s.all()
	of := 0
	for _, one := range all {
		of += len(s.subjectsFor(one)) * s.repeat
	}
	var results []*run.Result
	number := 0
	for _, one := range all {
		runs := make(map[run.Subject][]*run.Result)
		for range s.repeat {
			for _, subject := range s.subjectsFor(one) {
				number++
				options := s.optionsFor(one, subject)
				p := &progress{out: errOut, title: fmt.Sprintf("[%d/%d] %s, %s, %s, %d legs", number, of, subject, one.role, one.mode, options.Legs)}
				for _, kind := range []string{string(one.storm), one.limit} {
					if kind != "" {
						p.title += ", " + kind
					}
				}
				options.Programs, options.Progress = *programs, p.at
				result, err := run.Run(ctx, options)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", p.title, err)
				}
				p.end(result)
				runs[subject] = append(runs[subject], result)
			}
		}
		for _, subject := range s.subjectsFor(one) {
			results = append(results, run.Median(runs[subject]))
		}
	}
	return results, nil
}

func (s *settings) optionsFor(one setting, subject run.Subject) *run.Options {
	options := &run.Options{
		Subject: subject, Role: one.role, Mode: one.mode, Storm: one.storm, Limit: one.limit,
		Legs: one.legs, Callers: s.callers, Idle: s.idle,
		CountsOnly: s.check, Profiles: s.profiles,
	}
	switch {
	case one.storm == "":
		options.Rounds = s.roundsFor(one.legs)
	case subject == run.Stock:
		options.Legs = min(options.Legs, stockLegs)
	}
	return options
}

// subjectsFor are those of a setting. The limit of memory is asked of ours alone, and
// the floor watches nothing upstream that a cut could end. A check needs stock once, to show that the counting bites, and once in a
// cut; it would take most of the time.
func (s *settings) subjectsFor(one setting) []run.Subject {
	return slices.DeleteFunc(slices.Clone(s.subjects), func(subject run.Subject) bool {
		switch {
		case one.limit != "":
			return subject != run.Ours
		case one.storm == run.Cut && subject == run.Floor:
			return true
		case s.check && subject == run.Stock:
			return !one.first && one.storm != run.Cut
		default:
			return false
		}
	})
}

// pause is how often a run says how far it is.
const pause = 3 * time.Second

// progress tells of one run.
type progress struct {
	out   io.Writer
	title string

	mu   sync.Mutex
	said time.Time // guarded by mu
}

func (p *progress) at(what string, done, of int) {
	p.mu.Lock()
	if p.said.IsZero() {
		p.said = time.Now()
	}
	due := time.Since(p.said) >= pause
	if due {
		p.said = time.Now()
	}
	p.mu.Unlock()
	if due {
		_, _ = fmt.Fprintf(p.out, "%s: %d of %d %s\n", p.title, done, of, what)
	}
}

func (p *progress) end(r *run.Result) {
	if w := r.Storm; w != nil {
		_, _ = fmt.Fprintf(p.out, "%s: %.2f s, %d dials, %d DOWNs, %d missing, %d errors\n",
			p.title, w.Seconds, w.Dials, r.Downs, w.Missing, r.Errors)
		return
	}
	_, _ = fmt.Fprintf(p.out, "%s: %.2f ms of CPU for a refresh, %.0f KiB for a leg, %d errors\n",
		p.title, r.CPUPerRefresh, r.MemoryPerLeg, r.Errors)
}

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
	legs int
	role neighbours.Role
	mode load.Mode
}

// measure runs every subject in every setting, turn about, so often as is asked
// for, and returns the medians, those of one setting one after another.
func (s *settings) measure(ctx context.Context, programs *run.Programs, errOut io.Writer) ([]*run.Result, error) {
	ctx = log.WithLog(ctx, log.Empty()) // the load's parts of the SDK are not what it is about
	var all []setting
	for _, legs := range s.legs {
		for _, role := range s.roles {
			for _, mode := range s.modes {
				all = append(all, setting{legs, role, mode})
			}
		}
	}
	of := 0
	for i := range all {
		of += len(s.subjectsFor(i)) * s.repeat
	}
	var results []*run.Result
	number := 0
	for i, one := range all {
		runs := make(map[run.Subject][]*run.Result)
		for range s.repeat {
			for _, subject := range s.subjectsFor(i) {
				number++
				p := &progress{out: errOut, title: fmt.Sprintf("[%d/%d] %s, %s, %s, %d legs", number, of, subject, one.role, one.mode, one.legs)}
				result, err := run.Run(ctx, &run.Options{
					Subject: subject, Role: one.role, Mode: one.mode,
					Legs: one.legs, Rounds: s.roundsFor(one.legs), Callers: s.callers, Idle: s.idle,
					Programs: *programs, CountsOnly: s.check, Profiles: s.profiles, Progress: p.at,
				})
				if err != nil {
					return nil, fmt.Errorf("%s: %w", p.title, err)
				}
				p.end(result)
				runs[subject] = append(runs[subject], result)
			}
		}
		for _, subject := range s.subjectsFor(i) {
			results = append(results, run.Median(runs[subject]))
		}
	}
	return results, nil
}

// subjectsFor are those of a setting. A check needs stock once, to show that the
// counting bites; it would take most of the time.
func (s *settings) subjectsFor(setting int) []run.Subject {
	if !s.check || setting == 0 {
		return s.subjects
	}
	return slices.DeleteFunc(slices.Clone(s.subjects), func(subject run.Subject) bool { return subject == run.Stock })
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
	_, _ = fmt.Fprintf(p.out, "%s: %.2f ms of CPU for a refresh, %.0f KiB for a leg, %d errors\n",
		p.title, r.CPUPerRefresh, r.MemoryPerLeg, r.Errors)
}

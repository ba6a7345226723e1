// Package report shows runs of the lab: lines while one goes on, a table and
// JSON at the end. Lines that say the same in a row are shown once and counted.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/scenario"
)

// width is what every line fits into.
const width = 80

// Live prints events as they come. It is not for concurrent use.
type Live struct {
	Out   io.Writer
	Color bool // for terminals only

	last    scenario.Line // without its time
	repeats int
	counts  ledger.Counts // shown last
}

const (
	red   = "\x1b[31m"
	green = "\x1b[32m"
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
)

// Heading starts a run.
func (v *Live) Heading(name, text string) {
	v.counts = ledger.Counts{}
	v.Text("")
	v.Text("== " + name + ": " + text)
	v.print(dim, fmt.Sprintf("%7s  %-8s  %-14s  %-8s  %-4s  %s", "time", "who", "event", "state", "hop", "reason"))
}

// Line prints one event.
func (v *Live) Line(line *scenario.Line) {
	same := *line
	same.At = 0
	if same == v.last {
		v.repeats++
		return
	}
	v.flush()
	v.last = same
	color := ""
	switch {
	case line.State == "DOWN":
		color = red
	case line.State == "UP":
		color = green
	}
	v.print(color, fmt.Sprintf("%7s  %-8s  %-14s  %-8s  %-4s  %s",
		seconds(line.At), line.Who, line.Event, line.State, line.Hop, line.Reason))
}

// Counts prints the numbers so far, if they have changed.
func (v *Live) Counts(at time.Duration, c ledger.Counts) {
	if c == v.counts {
		return
	}
	v.counts = c
	v.flush()
	v.print(dim, fmt.Sprintf("%7s  so far: refresh %d  dial %d  cut %d  resume %d  DOWN false %d true %d",
		seconds(at), c.Refreshes, c.Dials, c.Cuts, c.Resumes, c.DownFalse, c.DownTrue))
}

// Text prints a line of prose.
func (v *Live) Text(text string) {
	v.flush()
	v.last = scenario.Line{}
	v.print("", text)
}

// flush tells of what was left out.
func (v *Live) flush() {
	if v.repeats > 0 {
		v.print(dim, fmt.Sprintf("%7s  the same %d times more", "", v.repeats))
		v.repeats = 0
	}
}

func (v *Live) print(color, text string) {
	text = strings.TrimRight(cut(text), " ")
	if v.Color && color != "" {
		text = color + text + plain
	}
	_, _ = fmt.Fprintln(v.Out, text)
}

func cut(text string) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// Table compares runs, one column each.
func Table(out io.Writer, summaries []*scenario.Summary) {
	rows := []struct {
		title string
		value func(*scenario.Summary) string
	}{
		{"", func(s *scenario.Summary) string { return s.Name }},
		{"duration", func(s *scenario.Summary) string { return seconds(s.Duration) }},
		{"connections", func(s *scenario.Summary) string { return strconv.Itoa(s.Connections) }},
		{"path segments", func(s *scenario.Summary) string { return strconv.Itoa(s.Segments) }},
		{"refreshes", func(s *scenario.Summary) string { return strconv.Itoa(s.Refreshes) }},
		{"upstream dials", func(s *scenario.Summary) string { return strconv.Itoa(s.Dials) }},
		{"  caused by a refresh", func(s *scenario.Summary) string { return strconv.Itoa(s.RefreshDials) }},
		{"cuts by the balancer", func(s *scenario.Summary) string { return strconv.Itoa(s.Cuts) }},
		{"resumes (proxy's log)", func(s *scenario.Summary) string { return strconv.Itoa(s.Resumes) }},
		{"DOWN false", func(s *scenario.Summary) string { return strconv.Itoa(s.DownFalse) }},
		{"  seen by the client", func(s *scenario.Summary) string { return strconv.Itoa(s.ClientDownFalse) }},
		{"DOWN true", func(s *scenario.Summary) string { return strconv.Itoa(s.DownTrue) }},
		{"heals (reselects)", func(s *scenario.Summary) string { return strconv.Itoa(s.Heals) }},
		{"UPDATEs per refresh", updates},
		{"contract held", func(s *scenario.Summary) string {
			if s.Held {
				return "yes"
			}
			return "no"
		}},
	}
	for _, row := range rows {
		text := fmt.Sprintf("%-24s", row.title)
		for _, s := range summaries {
			text += fmt.Sprintf("%12s", row.value(s))
		}
		_, _ = fmt.Fprintln(out, strings.TrimRight(text, " "))
	}
	for _, s := range summaries {
		for i, why := range s.Why {
			if i == 0 {
				_, _ = fmt.Fprintln(out, "\nwhy not, "+s.Name+":")
			}
			_, _ = fmt.Fprintln(out, cut("- "+why))
		}
	}
}

func updates(s *scenario.Summary) string {
	switch {
	case s.Refreshes == 0:
		return "-"
	case s.UpdatesMin == s.UpdatesMax:
		return strconv.Itoa(s.UpdatesMin)
	default:
		return fmt.Sprintf("%d-%d", s.UpdatesMin, s.UpdatesMax)
	}
}

// JSON writes the summaries for machines.
func JSON(out io.Writer, summaries []*scenario.Summary) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(struct {
		Runs []*scenario.Summary `json:"runs"`
	}{summaries}); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

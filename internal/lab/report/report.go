// Package report shows runs of the lab: lines while one goes on, a table and
// JSON at the end. Lines that say the same in a row are shown once and counted.
package report

import (
	"encoding/json"
	"fmt"
	"io"
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
	text := fmt.Sprintf("%7s  %-8s  %-14s  ", seconds(line.At), line.Who, line.Event)
	if line.State != "" || line.Hop != "" { // else the reason needs the room
		text += fmt.Sprintf("%-8s  %-4s  ", line.State, line.Hop)
	}
	v.print(color, text+line.Reason)
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

// Package report writes what the bench has measured: a table, JSON, and a plot.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/run"
)

// column is one of the table, as wide as its title or more.
type column struct {
	title string
	value func(*run.Result) string
}

func number(title string, of func(*run.Result) int) column {
	return column{title, func(r *run.Result) string { return strconv.Itoa(of(r)) }}
}

func figure(title string, of func(*run.Result) float64) column {
	return column{title, func(r *run.Result) string {
		switch value := of(r); {
		case value == 0:
			return "-"
		case value < 100:
			return strconv.FormatFloat(value, 'f', 2, 64)
		default:
			return strconv.FormatFloat(value, 'f', 0, 64)
		}
	}}
}

// columnsOf are a run's, or a storm's.
func columnsOf(r *run.Result) []column {
	if r.Storm != nil {
		return stormColumns()
	}
	return []column{
		{"       ", func(r *run.Result) string { return string(r.Subject) }},
		figure("CPU/refresh ms", func(r *run.Result) float64 { return r.CPUPerRefresh }),
		figure("CPU/first ms", func(r *run.Result) float64 { return r.CPUPerFirst }),
		figure("p50 ms", func(r *run.Result) float64 { return r.P50 }),
		figure("p99 ms", func(r *run.Result) float64 { return r.P99 }),
		figure("KiB/leg", func(r *run.Result) float64 { return r.MemoryPerLeg }),
		figure("all MiB", func(r *run.Result) float64 { return r.Memory }),
		figure("peak MiB", func(r *run.Result) float64 { return r.Peak }),
		figure("idle %", func(r *run.Result) float64 { return r.IdleCPU }),
		{"upstream conns", func(r *run.Result) string { return fmt.Sprintf("%d+%d", r.ConnectionsFirst, r.ConnectionsRefresh) }},
		{"handshakes", func(r *run.Result) string { return fmt.Sprintf("%d+%d", r.HandshakesFirst, r.HandshakesRefresh) }},
		number("open", func(r *run.Result) int { return r.ConnectionsOpen }),
		number("finds", func(r *run.Result) int { return r.Finds }),
		number("streams", func(r *run.Result) int { return r.Streams }),
		number("updates", func(r *run.Result) int { return r.Updates }),
		number("others", func(r *run.Result) int { return r.Others }),
		number("errors", func(r *run.Result) int { return r.Errors }),
	}
}

func stormColumns() []column {
	return []column{
		{"       ", func(r *run.Result) string { return string(r.Subject) }},
		number(" legs", func(r *run.Result) int { return r.Legs }),
		figure("   all after s", func(r *run.Result) float64 { return r.Storm.Seconds }),
		figure(" CPU s", func(r *run.Result) float64 { return r.Storm.CPU }),
		figure("settled MiB", func(r *run.Result) float64 { return r.Storm.Settled }),
		figure("peak MiB", func(r *run.Result) float64 { return r.Storm.Peak }),
		figure("peak/settled", func(r *run.Result) float64 {
			if r.Storm.Settled == 0 {
				return 0
			}
			return r.Storm.Peak / r.Storm.Settled
		}),
		number("upstream dials", func(r *run.Result) int { return r.Storm.Dials }),
		number("missing", func(r *run.Result) int { return r.Storm.Missing }),
		number("DOWNs", func(r *run.Result) int { return r.Downs }),
		number("streams", func(r *run.Result) int { return r.Streams }),
		number("others", func(r *run.Result) int { return r.Others }),
		number("errors", func(r *run.Result) int { return r.Errors }),
	}
}

// Table writes a table for each setting. Upstream connections and handshakes are
// those of first Requests + those of refreshes; before both, a warm-up may have
// made one that is open ever since.
func Table(out io.Writer, results []*run.Result) {
	heading := ""
	for _, r := range results {
		if h := headingOf(r); h != heading {
			heading = h
			_, _ = fmt.Fprintf(out, "\n%s\n", h)
			line(out, columnsOf(r), func(c column) string { return c.title })
		}
		line(out, columnsOf(r), func(c column) string { return c.value(r) })
		if r.FirstError != "" {
			_, _ = fmt.Fprintln(out, "        first error:", r.FirstError)
		}
	}
}

func headingOf(r *run.Result) string {
	if r.Storm != nil {
		return fmt.Sprintf("storm: %s, %s, %s downstream, %d runs", r.Storm.Storm, r.Role, r.Mode, r.Runs)
	}
	heading := fmt.Sprintf("%s, %s downstream, %d legs, %d rounds of refreshes, %d runs", r.Role, r.Mode, r.Legs, r.Rounds, r.Runs)
	if r.Limit != "" {
		heading += ", GOMEMLIMIT=" + r.Limit
	}
	return heading
}

func line(out io.Writer, columns []column, of func(column) string) {
	var text strings.Builder
	for _, c := range columns {
		_, _ = fmt.Fprintf(&text, "%*s  ", len(c.title), of(c))
	}
	_, _ = fmt.Fprintln(out, strings.TrimRight(text.String(), " "))
}

// JSON writes the results for machines.
func JSON(out io.Writer, results []*run.Result) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(results); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Read reads what JSON wrote into a file.
func Read(path string) ([]*run.Result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var results []*run.Result
	if err = json.Unmarshal(data, &results); err != nil {
		return nil, fmt.Errorf("report: %s: %w", path, err)
	}
	return results, nil
}

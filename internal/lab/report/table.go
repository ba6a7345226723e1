package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/scenario"
)

// unknown stands for a figure that a run does not have.
const unknown = "-"

// row is a line of the table.
type row struct {
	title string
	value func(*scenario.Summary) string
}

func number(title string, n func(*scenario.Summary) int) row {
	return row{title, func(s *scenario.Summary) string { return strconv.Itoa(n(s)) }}
}

// figure is a number that may not be known.
func figure(title string, of func(*scenario.Summary) *float64) row {
	return row{title, func(s *scenario.Summary) string {
		value := of(s)
		switch {
		case value == nil:
			return unknown
		case *value < 10:
			return strconv.FormatFloat(*value, 'f', 2, 64)
		default:
			return strconv.FormatFloat(*value, 'f', 0, 64)
		}
	}}
}

// ofProxy takes the figure of one of the two proxies.
func ofProxy(pair *[2]float64, i int) *float64 {
	if pair == nil {
		return nil
	}
	return &pair[i]
}

// Table compares runs, one column each.
func Table(out io.Writer, summaries []*scenario.Summary) {
	rows := general()
	if slices.ContainsFunc(summaries, func(s *scenario.Summary) bool { return s.Soak != nil }) {
		rows = append(rows, ofSoak(summaries)...)
	}
	rows = append(rows, known(costs(), summaries)...)
	rows = append(rows, row{"contract held", func(s *scenario.Summary) string {
		if s.Held {
			return "yes"
		}
		return "no"
	}})
	for _, row := range rows {
		text := fmt.Sprintf("%-34s", row.title)
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

// known leaves out the rows of which no run has a figure.
func known(rows []row, summaries []*scenario.Summary) []row {
	return slices.DeleteFunc(rows, func(r row) bool {
		return !slices.ContainsFunc(summaries, func(s *scenario.Summary) bool { return r.value(s) != unknown })
	})
}

func general() []row {
	return []row{
		{"", func(s *scenario.Summary) string { return s.Name }},
		{"duration", func(s *scenario.Summary) string { return seconds(s.Duration) }},
		number("connections", func(s *scenario.Summary) int { return s.Connections }),
		number("path segments", func(s *scenario.Summary) int { return s.Segments }),
		number("refreshes", func(s *scenario.Summary) int { return s.Refreshes }),
		number("upstream dials", func(s *scenario.Summary) int { return s.Dials }),
		number("  caused by a refresh", func(s *scenario.Summary) int { return s.RefreshDials }),
		number("cuts by the balancer", func(s *scenario.Summary) int { return s.Cuts }),
		number("resumes (proxy's log)", func(s *scenario.Summary) int { return s.Resumes }),
		number("DOWN false", func(s *scenario.Summary) int { return s.DownFalse }),
		number("  seen by the client", func(s *scenario.Summary) int { return s.ClientDownFalse }),
		number("DOWN true", func(s *scenario.Summary) int { return s.DownTrue }),
		figure("  ms after the death", func(s *scenario.Summary) *float64 { return s.DeathToDown.Proxy }),
		figure("  ms, seen by the client", func(s *scenario.Summary) *float64 { return s.DeathToDown.Client }),
		number("heals (reselects)", func(s *scenario.Summary) int { return s.Heals }),
		{"UPDATEs per refresh", updates},
	}
}

func costs() []row {
	var rows []row
	for i, title := range []string{"CPU ms per first Request, proxy 1", "                          proxy 2"} {
		rows = append(rows, figure(title, func(s *scenario.Summary) *float64 { return ofProxy(s.CPUPerFirst, i) }))
	}
	for i, title := range []string{"CPU ms per refresh, proxy 1", "                    proxy 2"} {
		rows = append(rows, figure(title, func(s *scenario.Summary) *float64 { return ofProxy(s.CPUPerRefresh, i) }))
	}
	for i, title := range []string{"KiB per connection, proxy 1", "                    proxy 2"} {
		rows = append(rows, figure(title, func(s *scenario.Summary) *float64 { return ofProxy(s.Memory, i) }))
	}
	return rows
}

// ofSoak are the rows that only a soak has, with one for each fault.
func ofSoak(summaries []*scenario.Summary) []row {
	soak := func(value func(*scenario.Soak) string) func(*scenario.Summary) string {
		return func(s *scenario.Summary) string {
			if s.Soak == nil {
				return unknown
			}
			return value(s.Soak)
		}
	}
	rows := []row{
		{"seed", soak(func(s *scenario.Soak) string { return strconv.FormatUint(s.Seed, 10) })},
		{"connection-hours", soak(func(s *scenario.Soak) string { return fmt.Sprintf("%.2f", s.ConnectionHours) })},
		{"false DOWN per 1000 of them", soak(func(s *scenario.Soak) string { return fmt.Sprintf("%.0f", s.FalsePerThousand) })},
		number("refreshes failed", func(s *scenario.Summary) int { return s.RefreshFailures }),
		number("  by a neighbour", func(s *scenario.Summary) int { return s.RefreshExcused }),
		number("DOWN by a neighbour, at client", func(s *scenario.Summary) int { return s.ClientDownExcused }),
		number("adopted after a restart", func(s *scenario.Summary) int { return s.Adopted }),
		number("closed before a death was heard", func(s *scenario.Summary) int { return s.LeftUnheard }),
		number("not adopted", func(s *scenario.Summary) int { return s.NotAdopted }),
		{"slowest recovery", soak(func(s *scenario.Soak) string { return seconds(s.Slowest) })},
	}
	kinds := make(map[string]struct{})
	for _, s := range summaries {
		if s.Soak != nil {
			for kind := range s.Soak.Faults {
				kinds[kind] = struct{}{}
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		rows = append(rows, row{"fault: " + kind, soak(func(s *scenario.Soak) string { return strconv.Itoa(s.Faults[kind]) })})
	}
	return rows
}

func updates(s *scenario.Summary) string {
	switch {
	case s.Refreshes == 0:
		return unknown
	case s.UpdatesMin == s.UpdatesMax:
		return strconv.Itoa(s.UpdatesMin)
	default:
		return fmt.Sprintf("%d-%d", s.UpdatesMin, s.UpdatesMax)
	}
}

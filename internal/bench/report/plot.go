package report

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/run"
)

// The plot is two panels for each mode, side by side: CPU and memory. Both axes
// are logarithmic, for the subjects are a factor of ten apart and the legs a
// factor of a hundred.
const (
	panelWidth, panelHeight = 420, 300
	// What stands around a panel's axes.
	left, right, top, bottom = 62, 18, 44, 44
)

// colours are told apart by those who see no red or green, too.
var colours = map[run.Subject]string{run.Floor: "#7f7f7f", run.Stock: "#d95f02", run.Ours: "#1f77b4"}

// Save draws the results into an SVG file.
func Save(path string, results []*run.Result) error {
	if err := os.WriteFile(path, []byte(Plot(results)), 0o600); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Plot draws CPU for a refresh and memory of a leg against the number of legs.
func Plot(results []*run.Result) string {
	var panels strings.Builder
	rows := 0
	for _, mode := range []load.Mode{load.Shared, load.Redial} {
		chosen := slices.DeleteFunc(slices.Clone(results), func(r *run.Result) bool {
			return r.Storm != nil || r.Limit != "" || r.Mode != mode || r.Role != results[0].Role
		})
		if len(chosen) == 0 {
			continue
		}
		slices.SortStableFunc(chosen, func(a, b *run.Result) int { return a.Legs - b.Legs })
		y := rows * panelHeight
		drawPanel(&panels, 0, y, fmt.Sprintf("CPU for a refresh, ms (%s)", mode), chosen,
			func(r *run.Result) float64 { return r.CPUPerRefresh })
		drawPanel(&panels, panelWidth, y, fmt.Sprintf("memory of a leg, KiB (%s)", mode), chosen,
			func(r *run.Result) float64 { return r.MemoryPerLeg })
		rows++
	}
	const frame = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d"
 font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="white"/>
%[3]s</svg>
`
	return fmt.Sprintf(frame, 2*panelWidth, rows*panelHeight, panels.String())
}

// scale maps values to places on a logarithmic axis of whole decades.
type scale struct {
	low, high float64 // decimal logarithms
	from, to  float64
}

func newScale(values []float64, from, to float64) scale {
	s := scale{low: math.Floor(math.Log10(slices.Min(values))), high: math.Ceil(math.Log10(slices.Max(values))), from: from, to: to}
	if s.high == s.low {
		s.high++
	}
	return s
}

func (s scale) at(value float64) float64 {
	return s.from + (s.to-s.from)*(math.Log10(value)-s.low)/(s.high-s.low)
}

// decades are the ticks.
func (s scale) decades() []float64 {
	var values []float64
	for e := s.low; e <= s.high; e++ {
		values = append(values, math.Pow(10, e))
	}
	return values
}

func drawPanel(out *strings.Builder, x, y int, title string, results []*run.Result, of func(*run.Result) float64) {
	// What was not measured has no logarithm.
	results = slices.DeleteFunc(slices.Clone(results), func(r *run.Result) bool { return of(r) <= 0 })
	if len(results) == 0 {
		return
	}
	var legs, values []float64
	for _, r := range results {
		legs, values = append(legs, float64(r.Legs)), append(values, of(r))
	}
	across := newScale(legs, float64(x+left), float64(x+panelWidth-right))
	up := newScale(values, float64(y+panelHeight-bottom), float64(y+top))
	text(out, float64(x+left), float64(y+16), "start", "black", title)
	text(out, float64(x+panelWidth-right), float64(y+panelHeight-10), "end", "black", "legs")
	for _, tick := range across.decades() {
		rule(out, across.at(tick), up.from, across.at(tick), up.to)
		text(out, across.at(tick), up.from+16, "middle", "black", fmt.Sprintf("%g", tick))
	}
	for _, tick := range up.decades() {
		rule(out, across.from, up.at(tick), across.to, up.at(tick))
		text(out, across.from-6, up.at(tick)+4, "end", "black", fmt.Sprintf("%g", tick))
	}
	for i, subject := range run.Subjects() {
		drawSeries(out, subject, results, func(r *run.Result) (float64, float64) { return across.at(float64(r.Legs)), up.at(of(r)) })
		text(out, float64(x+left+70*i), float64(y+32), "start", colours[subject], string(subject))
	}
}

func drawSeries(out *strings.Builder, subject run.Subject, results []*run.Result, place func(*run.Result) (x, y float64)) {
	var points []string
	for _, r := range results {
		if r.Subject != subject {
			continue
		}
		x, y := place(r)
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
		_, _ = fmt.Fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x, y, colours[subject])
	}
	_, _ = fmt.Fprintf(out, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n",
		strings.Join(points, " "), colours[subject])
}

func text(out *strings.Builder, x, y float64, anchor, colour, content string) {
	_, _ = fmt.Fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, colour, content)
}

func rule(out *strings.Builder, x1, y1, x2, y2 float64) {
	_, _ = fmt.Fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", x1, y1, x2, y2)
}

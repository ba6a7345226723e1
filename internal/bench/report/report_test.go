package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/run"
)

func results() []*run.Result {
	var all []*run.Result
	for _, legs := range []int{100, 1000} {
		for _, mode := range []load.Mode{load.Shared, load.Redial} {
			for i, subject := range run.Subjects() {
				all = append(all, &run.Result{
					Subject: subject, Role: neighbours.Outbound, Mode: mode, Legs: legs, Rounds: 3, Runs: 2,
					Figures: run.Figures{CPUPerRefresh: 0.5 + float64(i), MemoryPerLeg: 30 * float64(i+1)},
					Counts:  run.Counts{ConnectionsFirst: 1, ConnectionsRefresh: 7},
				})
			}
		}
	}
	return all
}

func TestTable(t *testing.T) {
	all := results()
	all[1].FirstError = "refused"
	var out bytes.Buffer
	Table(&out, all)
	text := out.String()
	require.Equal(t, 4, strings.Count(text, "CPU/refresh ms"), "a table for each setting")
	require.Contains(t, text, "\noutbound, redial downstream, 1000 legs, 3 rounds of refreshes, 2 runs\n")
	require.Contains(t, text, "first error: refused")
	lines := strings.Split(text, "\n")
	require.Regexp(t, `^  floor +0\.50 +- +- +- +30\.00 +- +- +- +1\+7 `, lines[3])
	for _, line := range lines {
		require.Equal(t, strings.TrimRight(line, " "), line)
	}
}

func TestStormsHaveATableOfTheirOwn(t *testing.T) {
	storm := &run.Result{Subject: run.Ours, Role: neighbours.Outbound, Mode: load.Shared, Legs: 5000, Runs: 1, Storm: &run.Weather{
		Storm: run.Cut, Seconds: 1.5, Settled: 200, Peak: 300, Dials: 1,
	}}
	var out bytes.Buffer
	Table(&out, append(results(), storm))
	require.Regexp(t, `\nstorm: cut, outbound, shared downstream, 1 runs\n.* peak/settled .*\n +ours +5000 +1\.50 +- +200 +300 +1\.50 +1 +0 +0 `, out.String())
	require.Equal(t, Plot(results()), Plot(append(results(), storm)), "there is nothing of it to draw")
}

func TestLimitedOnesHaveATableOfTheirOwn(t *testing.T) {
	limited := *results()[0]
	limited.Limit = "90MiB"
	var out bytes.Buffer
	Table(&out, []*run.Result{results()[0], &limited})
	require.Contains(t, out.String(), "\noutbound, shared downstream, 100 legs, 3 rounds of refreshes, 2 runs, GOMEMLIMIT=90MiB\n")
	require.Equal(t, Plot(results()), Plot(append(results(), &limited)))
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, JSON(&out, results()))
	var back []*run.Result
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, results(), back)
	require.Contains(t, out.String(), `"cpuMillisecondsPerRefresh": 0.5`)

	path := filepath.Join(t.TempDir(), "results")
	_, err := Read(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	back, err = Read(path)
	require.NoError(t, err)
	require.Equal(t, results(), back)
	require.NoError(t, os.WriteFile(path, []byte("no JSON"), 0o600))
	_, err = Read(path)
	require.ErrorContains(t, err, path)
}

func TestPlotIsXMLWithALineForEach(t *testing.T) {
	plot := Plot(results())
	decoder := xml.NewDecoder(strings.NewReader(plot))
	seen := make(map[string]int)
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if element, ok := token.(xml.StartElement); ok {
			seen[element.Name.Local]++
		}
	}
	require.Equal(t, 4*3, seen["polyline"], "three subjects in four panels")
	require.Equal(t, 4*3*2, seen["circle"])
	require.NotContains(t, plot, "NaN")
	require.NotContains(t, plot, "Inf")

	path := filepath.Join(t.TempDir(), "plot.svg")
	require.NoError(t, Save(path, results()))
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, plot, string(saved))
	require.Error(t, Save(filepath.Join(path, "x"), results()))
}

// A value of 0 is one that was not measured, and has no logarithm.
func TestPlotLeavesOutWhatIsNotKnown(t *testing.T) {
	all := results()
	for _, r := range all {
		r.MemoryPerLeg = 0
	}
	plot := Plot(all)
	require.Contains(t, plot, "CPU for a refresh")
	require.NotContains(t, plot, "memory")
	require.NotContains(t, plot, "NaN")
}

func TestScale(t *testing.T) {
	s := newScale([]float64{30, 2000}, 0, 300)
	require.InDelta(t, 0, s.at(10), 1e-9)
	require.InDelta(t, 100, s.at(100), 1e-9)
	require.InDelta(t, 300, s.at(10_000), 1e-9)
	require.Equal(t, []float64{10, 100, 1000, 10_000}, s.decades())
	require.Len(t, newScale([]float64{10}, 0, 1).decades(), 2, "one value makes a decade, too")
}

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/run"
)

// TestMain lets this binary be floor, stock and the far side, too, as the bench's
// binary is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && partOf(os.Args[1]) != nil {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// All three proxies as processes, in both roles and both modes: one upstream
// connection, one event for each refresh, no error. Stock, which dials for each
// Request, shows that the counting bites.
func TestCheck(t *testing.T) {
	var out, errOut bytes.Buffer
	status := bench(t.Context(), []string{"--check", "--json"}, &out, &errOut)
	require.Equal(t, done, status, errOut.String())
	var results []*run.Result
	require.NoError(t, json.Unmarshal(out.Bytes(), &results))
	require.Len(t, results, 2*2*2+1+2+2+2, "stock once, and once in a storm; the floor not in a cut")
	for _, r := range results {
		if r.Storm != nil {
			continue
		}
		require.Positive(t, r.CPUPerRefresh, "%s", r.Subject)
		require.Positive(t, r.P50, "%s", r.Subject)
	}
	require.Contains(t, errOut.String(), "every count is as it should be")
}

// A run that is not a check measures memory and idle time as well.
func TestMeasuresOne(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "plot.svg")
	var out, errOut bytes.Buffer
	status := bench(t.Context(), []string{
		"--only", "floor", "--mode", "shared", "--legs", "20", "--rounds", "2", "--idle", "100ms", "--plot", plot, "--proxy", os.Args[0],
	}, &out, &errOut)
	require.Equal(t, done, status, errOut.String())
	require.Contains(t, out.String(), "outbound, shared downstream, 20 legs, 2 rounds")
	require.FileExists(t, plot)
	require.Contains(t, errOut.String(), "[1/1] floor, outbound, shared, 20 legs: ")

	// What was measured once can be shown again, without measuring.
	saved := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, os.WriteFile(saved, []byte(`[{"subject": "ours", "role": "inbound", "mode": "redial", "legs": 7}]`), 0o600))
	out.Reset()
	errOut.Reset()
	require.Equal(t, done, bench(t.Context(), []string{"--earlier", saved, "--legs", ""}, &out, &errOut), errOut.String())
	require.Contains(t, out.String(), "inbound, redial downstream, 7 legs")
	require.Empty(t, errOut.String())
	require.Equal(t, failed, bench(t.Context(), []string{"--earlier", saved + "x", "--legs", ""}, &out, &errOut))
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--legs", "0"}, {"--legs", "1,x"}, {"--rounds", "-1"}, {"--callers", "0"}, {"--repeat", "0"}, {"--idle", "-1s"},
		{"--only", "theirs"}, {"--storm", "hail"}, {"--mode", "both"}, {"--role", ""}, {"more"}, {"--nonsense"},
	} {
		var errOut bytes.Buffer
		require.Equal(t, misused, bench(t.Context(), args, new(bytes.Buffer), &errOut), "%v", args)
		require.NotEmpty(t, errOut.String())
	}
	require.Equal(t, done, bench(t.Context(), []string{"--help"}, new(bytes.Buffer), new(bytes.Buffer)))

	s, err := parse([]string{"--legs", "100, 1000", "--only", "ours,floor", "--role", "inbound"}, new(bytes.Buffer))
	require.NoError(t, err)
	require.Equal(t, []int{100, 1000}, s.legs)
	require.Equal(t, []run.Subject{run.Floor, run.Ours}, s.subjects, "always in the same order")
	require.Equal(t, []load.Mode{load.Shared, load.Redial}, s.modes)
	require.Equal(t, []neighbours.Role{neighbours.Inbound}, s.roles)
	require.Equal(t, 20, s.roundsFor(100))
	require.Equal(t, fewestRounds, s.roundsFor(10_000))

	s, err = parse([]string{"--mode", "redial", "--legs", "1000", "--memory-limit", "90MiB"}, new(bytes.Buffer))
	require.NoError(t, err)
	require.Len(t, s.all(), 2)
	require.Equal(t, run.Subjects(), s.subjectsFor(s.all()[0]))
	require.Equal(t, []run.Subject{run.Ours}, s.subjectsFor(s.all()[1]))
	require.Equal(t, "90MiB", s.optionsFor(s.all()[1], run.Ours).Limit)

	s, err = parse([]string{"--storm", "subscribe,cut", "--mode", "shared"}, new(bytes.Buffer))
	require.NoError(t, err)
	require.Equal(t, stormCallers, s.callers)
	require.Equal(t, []setting{
		{legs: stormLegs, role: neighbours.Outbound, mode: load.Shared, storm: run.Cut, first: true},
		{legs: burstLegs, role: neighbours.Outbound, mode: load.Shared, storm: run.Subscribe},
	}, s.all())
	require.Equal(t, []run.Subject{run.Stock, run.Ours}, s.subjectsFor(s.all()[0]))
	require.Equal(t, stockLegs, s.optionsFor(s.all()[0], run.Stock).Legs)
	require.Equal(t, stormLegs, s.optionsFor(s.all()[0], run.Ours).Legs)

	s, err = parse([]string{"--storm", "establish", "--legs", "70", "--callers", "3"}, new(bytes.Buffer))
	require.NoError(t, err)
	require.Equal(t, 70, s.all()[0].legs)
	require.Equal(t, 3, s.callers)

	s, err = parse([]string{"--check", "--legs", "5000", "--repeat", "9", "--idle", "1h"}, new(bytes.Buffer))
	require.NoError(t, err)
	require.Equal(t, []int{checkedLegs}, s.legs)
	require.Equal(t, 1, s.repeat)
	require.Zero(t, s.idle)
}

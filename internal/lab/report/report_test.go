package report_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/report"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func line(at time.Duration, reason string) *scenario.Line {
	return &scenario.Line{At: at, Who: ledger.Proxy, Event: "UPDATE", State: "DOWN", Hop: "3", Reason: reason}
}

func summaries() []*scenario.Summary {
	return []*scenario.Summary{{
		Name: "stock", Duration: 61500 * time.Millisecond, Connections: 1, Segments: 8,
		Counts:  ledger.Counts{Dials: 19, Cuts: 7, DownFalse: 7, ClientDownFalse: 7, DownTrue: 1, Heals: 8},
		Verdict: ledger.Verdict{Why: []string{"DOWN while the endpoint was alive (7 times)"}},
	}, {
		Name: "ours", Duration: 62 * time.Second, Connections: 1, Segments: 8,
		Counts:  ledger.Counts{Refreshes: 3, Dials: 2, Cuts: 1, Resumes: 1, DownTrue: 1, Heals: 1},
		Verdict: ledger.Verdict{Held: true, UpdatesMin: 1, UpdatesMax: 1},
	}}
}

func TestLinesFitAndCarryNoColorUnasked(t *testing.T) {
	var out bytes.Buffer
	live := &report.Live{Out: &out}
	live.Heading("ours", strings.Repeat("long ", 40))
	live.Line(line(1234567*time.Millisecond, strings.Repeat("ü", 90)))
	live.Counts(time.Hour, ledger.Counts{Refreshes: 12345, Dials: 12345, Cuts: 12345, Resumes: 12345, DownFalse: 99})
	for text := range strings.Lines(out.String()) {
		text = strings.TrimSuffix(text, "\n")
		require.LessOrEqual(t, utf8.RuneCountInString(text), 80, text)
		require.Equal(t, strings.TrimRight(text, " "), text)
	}
	require.NotContains(t, out.String(), "\x1b")
	require.Contains(t, out.String(), "\n1234.6s  proxy1    UPDATE          DOWN      3     ü")
	require.Contains(t, out.String(), "…")

	out.Reset()
	(&report.Live{Out: &out, Color: true}).Line(line(0, ""))
	require.Contains(t, out.String(), "\x1b[31m")
}

func TestRepeatsAreCounted(t *testing.T) {
	var out bytes.Buffer
	live := &report.Live{Out: &out}
	for i := range 5 {
		live.Line(line(time.Duration(i)*time.Second, "a"))
	}
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	live.Line(line(9*time.Second, "b"))
	live.Text("end")
	require.Equal(t, 1, strings.Count(out.String(), "the same 4 times more"))
	require.Equal(t, 4, strings.Count(out.String(), "\n"))
}

func TestCountsAreShownWhenTheyChange(t *testing.T) {
	var out bytes.Buffer
	live := &report.Live{Out: &out}
	for _, dials := range []int{1, 1, 2} {
		live.Counts(time.Minute, ledger.Counts{Dials: dials})
	}
	require.Equal(t, 2, strings.Count(out.String(), "so far:"))
}

func TestTableSideBySide(t *testing.T) {
	var out bytes.Buffer
	report.Table(&out, summaries())
	for _, want := range []string{
		"                                         stock        ours\n",
		"duration                                 61.5s       62.0s\n",
		"refreshes                                    0           3\n",
		"DOWN false                                   7           0\n",
		"UPDATEs per refresh                          -           1\n",
		"contract held                               no         yes\n",
		"\nwhy not, stock:\n- DOWN while the endpoint was alive (7 times)\n",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "why not, ours")

	uneven := summaries()
	uneven[1].UpdatesMax = 3
	out.Reset()
	report.Table(&out, uneven[1:])
	require.Contains(t, out.String(), "UPDATEs per refresh                        1-3\n")
}

func TestFiguresAreShownIfKnown(t *testing.T) {
	var out bytes.Buffer
	report.Table(&out, summaries())
	require.NotContains(t, out.String(), "CPU")
	require.NotContains(t, out.String(), "KiB")
	require.NotContains(t, out.String(), "seed")

	one := summaries()
	took := 3.456
	one[0].CPUPerFirst = &[2]float64{12.3456, 7.8}
	one[1].DeathToDown.Proxy = &took
	out.Reset()
	report.Table(&out, one)
	for _, want := range []string{
		"CPU ms per first Request, proxy 1           12           -\n",
		"                          proxy 2         7.80           -\n",
		"  ms after the death                         -        3.46\n",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "per refresh, proxy")
}

func TestSoakHasItsOwnRows(t *testing.T) {
	one := summaries()
	one[1].Soak = &scenario.Soak{Seed: 7, ConnectionHours: 1.5, FalsePerThousand: 666.6, Faults: map[string]int{"cut": 3}}
	one[1].Adopted, one[1].ClientDownExcused = 2, 4
	var out bytes.Buffer
	report.Table(&out, one)
	for _, want := range []string{
		"seed                                         -           7\n",
		"connection-hours                             -        1.50\n",
		"false DOWN per 1000 of them                  -         667\n",
		"DOWN by a neighbour, at client               0           4\n",
		"adopted after a restart                      0           2\n",
		"fault: cut                                   -           3\n",
	} {
		require.Contains(t, out.String(), want)
	}
}

func TestRoomForAReason(t *testing.T) {
	var out bytes.Buffer
	live := &report.Live{Out: &out}
	live.Line(&scenario.Line{Who: ledger.Lab, Event: "FAULT", Reason: "endpoint dies in a black hole, 14.98s"})
	require.Equal(t, "   0.0s  lab       FAULT           endpoint dies in a black hole, 14.98s\n", out.String())
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, report.JSON(&out, summaries()))
	var got struct {
		Runs []map[string]any `json:"runs"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Len(t, got.Runs, 2)
	require.Equal(t, "ours", got.Runs[1]["name"])
	require.Equal(t, true, got.Runs[1]["contractHeld"])
	require.InDelta(t, 7, got.Runs[0]["downFalse"], 0)
	require.Equal(t, []any{"DOWN while the endpoint was alive (7 times)"}, got.Runs[0]["why"])
}

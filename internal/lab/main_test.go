package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/fault"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/ledger"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/scenario"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/stockproxy"
)

// TestMain lets this binary be the stock proxy, too, as the lab's binary is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == stockproxy.Command {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// story writes the events of a run into the test's log.
type story struct{ t *testing.T }

func (s story) Line(line *scenario.Line) {
	s.t.Logf("%6.2fs %s %s %s %s", line.At.Seconds(), line.Who, line.Event, line.State, line.Reason)
}

func (s story) Counts(time.Duration, ledger.Counts) {}

// soakSeed has a lag, a death and a restart of the outbound proxy among its first
// faults.
const soakSeed = 7530

const (
	// cutAfter is the balancer's limit. It is short to save the test's time; a
	// redial over mutual TLS takes some ten milliseconds of it.
	cutAfter = time.Second
	// cuts is how many of these limits the idle phase has room for, or how many
	// cuts it waits for.
	cuts = 10
	// resumeTime is how long a stream may stay away after a cut. On a busy
	// machine it may be cut again before it is open.
	resumeTime = 5 * time.Second
	// patience is how long the cuts may take on a machine that is busy.
	patience = 2 * time.Minute
)

// idle runs the idle phase alone: for that many cuts or, with none, for the time
// of ten.
func idle(t *testing.T, options *scenario.Options) *scenario.Summary {
	t.Helper()
	options.Idle = cutAfter
	options.For = cuts*cutAfter + cutAfter/2
	if options.Cuts > 0 {
		options.For = patience
	}
	options.Connections = 1
	options.OnlyIdle = true
	summary, err := scenario.Run(t.Context(), options, story{t})
	require.NoError(t, err)
	require.Equal(t, 8, summary.Segments)
	return summary
}

// Two real processes over mutual TLS, and a balancer that cuts what is idle,
// ten times. Ours has two cures, each tried without the other: the probe keeps
// the balancer from cutting, and resuming hides a cut. The SDK's chain in the
// same place has neither, which shows that the test bites.
func TestTwoProcessesTenIdleCuts(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "nsmgr-proxy")
	require.NoError(t, build(t.Context(), binary))

	t.Run("the probe prevents the cut", func(t *testing.T) {
		probe := cutAfter / 4
		summary := idle(t, &scenario.Options{Name: ours, ProxyPath: binary, ProbeInterval: &probe})
		require.True(t, summary.Held, summary.Why)
		// A machine that is busy elsewhere may let a probe come late.
		require.LessOrEqual(t, summary.Cuts, cuts/3)
		// The run may end between a cut and the dial that follows it.
		require.InDelta(t, summary.Cuts+1, summary.Dials, 1)
		require.Zero(t, summary.DownFalse+summary.ClientDownFalse)
	})
	t.Run("resuming hides the cut", func(t *testing.T) {
		off := time.Duration(0)
		summary := idle(t, &scenario.Options{Name: ours, ProxyPath: binary, ProbeInterval: &off, Cuts: cuts})
		require.True(t, summary.Held, summary.Why)
		require.GreaterOrEqual(t, summary.Cuts, cuts)
		// After each cut the stream is open again, and soon. A cut may hit one
		// that is not open yet: two cuts, one resume.
		require.Zero(t, summary.Unresumed)
		require.Less(t, summary.SlowestResume, resumeTime)
		require.Positive(t, summary.Resumes)
		require.LessOrEqual(t, summary.Resumes, summary.Cuts)
		require.GreaterOrEqual(t, summary.Dials, summary.Cuts+1)
		require.Zero(t, summary.DownFalse+summary.ClientDownFalse)
		require.Zero(t, summary.Heals)
	})
	t.Run("the SDK's chain reports every cut", func(t *testing.T) {
		self, err := os.Executable()
		require.NoError(t, err)
		const fewer = cuts / 2 // each heal takes its time before the next limit starts to run
		summary := idle(t, &scenario.Options{
			Name: stock, ProxyPath: self, ProxyArgs: []string{stockproxy.Command}, Cuts: fewer,
		})
		require.False(t, summary.Held)
		require.Zero(t, summary.Resumes)
		// One DOWN per cut of a connection that was UP. On a busy machine a cut
		// may hit a heal instead, which then has nothing to report.
		require.LessOrEqual(t, summary.DownFalse, summary.Cuts)
		require.GreaterOrEqual(t, summary.DownFalse, max(2, summary.Cuts/2))
		require.InDelta(t, summary.DownFalse, summary.ClientDownFalse, 1)
		require.InDelta(t, summary.DownFalse, summary.Heals, 1)
	})
}

// Everything that can go wrong between the proxies and behind them, for a
// minute: as often as it takes, no DOWN but for the death of an endpoint.
func TestSoak_AMinute(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "nsmgr-proxy")
	require.NoError(t, build(t.Context(), binary))
	const connections = 3
	summary, err := scenario.Run(t.Context(), &scenario.Options{
		Name: ours, ProxyPath: binary, Idle: 8 * time.Second, Connections: connections,
		Soak: time.Minute, Seed: soakSeed,
	}, story{t})
	require.NoError(t, err)
	require.True(t, summary.Held, "%s\n%s", summary.Why, summary.Logs)
	require.Zero(t, summary.DownFalse+summary.ClientDownFalse)
	require.InDelta(t, connections/60., summary.Soak.ConnectionHours, connections/120.)

	// What has to have happened for that to mean something.
	faults := summary.Soak.Faults
	require.GreaterOrEqual(t, len(faults), 5, faults)
	deaths := faults[string(fault.Death)] + faults[string(fault.DeathUnheard)]
	require.Equal(t, deaths*connections, summary.DownTrue)
	require.Positive(t, deaths)
	restarts := faults[string(fault.KillOutbound)] + faults[string(fault.KillBoth)]
	require.Equal(t, restarts*connections, summary.Adopted)
	require.Positive(t, restarts)
	require.Positive(t, summary.Refreshes)
}

// emptyTemp makes a temporary folder of the test's own, and wants it empty at
// the end.
func emptyTemp(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

func TestProxyThatEndsIsToldWithItsLog(t *testing.T) {
	emptyTemp(t)
	_, err := scenario.Run(t.Context(), &scenario.Options{
		Name: ours, ProxyPath: "/bin/sh", ProxyArgs: []string{"-c", "echo cannot start; exit 7"},
		Idle: time.Second, Connections: 1,
	}, story{t})
	require.ErrorContains(t, err, "nsmgr-proxy-")
	require.ErrorContains(t, err, "exit status 7")
	require.ErrorContains(t, err, "cannot start")
}

func TestInterruptEndsEverything(t *testing.T) {
	emptyTemp(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	var out, errOut bytes.Buffer
	// A proxy that never serves.
	hangs := filepath.Join(t.TempDir(), "hangs")
	require.NoError(t, os.WriteFile(hangs, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700))
	require.Equal(t, broken, run(ctx, []string{"--proxy", hangs}, &out, &errOut))
	require.Less(t, time.Since(began), 20*time.Second)
	require.Contains(t, errOut.String(), "lab: ours:")
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--no-such-flag"}, {"extra"}, {"--idle", "10ms"}, {"--for", "-1s"},
		{"--connections", "0"}, {"--stock", "--both"}, {"--soak", "1s"}, {"--seed", "-1"}, {"--refresh", "1s"},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, misused, run(t.Context(), args, &out, &errOut), args)
		require.NotEmpty(t, errOut.String(), args)
		require.Empty(t, out.String(), args)
	}
	var out, errOut bytes.Buffer
	require.Equal(t, held, run(t.Context(), []string{"--help"}, &out, &errOut))
	require.Contains(t, errOut.String(), "-keep-logs folder")
}

func TestRunsAndClosingLine(t *testing.T) {
	require.Equal(t, []string{ours}, (&settings{}).runs())
	require.Equal(t, []string{stock}, (&settings{stock: true}).runs())
	require.Equal(t, []string{stock, ours}, (&settings{both: true}).runs())

	bad := &scenario.Summary{Name: stock, Counts: ledger.Counts{Cuts: 7, DownFalse: 6}}
	good := &scenario.Summary{Name: ours, Verdict: ledger.Verdict{Held: true}}
	both := &settings{both: true}
	require.Equal(t, "ours: the contract held. Stock showed the fault: 6 false DOWN for 7 cuts.",
		closing(both, []*scenario.Summary{bad, good}))
	require.Contains(t, closing(both, []*scenario.Summary{good, good}), "no fault this time")
	require.Equal(t, "stock: the contract did NOT hold.", closing(&settings{stock: true}, []*scenario.Summary{bad}))
}

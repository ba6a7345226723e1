package fault_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/lab/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func draw(seed uint64, longest time.Duration, n int) []fault.Fault {
	schedule := fault.NewSchedule(seed, longest)
	faults := make([]fault.Fault, n)
	for i := range faults {
		faults[i] = schedule.Next()
	}
	return faults
}

func TestSeedDecides(t *testing.T) {
	first := draw(7, 20*time.Second, 100)
	require.Equal(t, first, draw(7, 20*time.Second, 100))
	require.NotEqual(t, first, draw(8, 20*time.Second, 100))
}

func TestEveryKindOncePerRound(t *testing.T) {
	kinds := fault.Kinds()
	faults := draw(1, 20*time.Second, 3*len(kinds))
	for round := range 3 {
		var seen []fault.Kind
		for _, f := range faults[round*len(kinds):][:len(kinds)] {
			seen = append(seen, f.Kind)
		}
		require.ElementsMatch(t, kinds, seen)
	}
}

func TestBounds(t *testing.T) {
	for _, longest := range []time.Duration{0, time.Second, 3 * time.Second, 20 * time.Second} {
		var last time.Duration
		for _, f := range draw(3, longest, 1000) {
			require.GreaterOrEqual(t, f.Lasts, time.Duration(0))
			require.LessOrEqual(t, f.Lasts, max(longest, time.Second), f)
			require.Positive(t, f.Rest)
			require.LessOrEqual(t, f.Rest, 6*time.Second)
			switch f.Kind {
			case fault.InnerBlackhole, fault.InnerRefuse:
				require.LessOrEqual(t, f.Lasts, 5*time.Second, "longer than the local grace stands")
			case fault.Cut, fault.Reset, fault.Move:
				require.Zero(t, f.Lasts)
			}
			last = max(last, f.Lasts)
		}
		require.Greater(t, last, longest*9/10, "the whole range is used")
	}
	require.Equal(t, "cut", fault.Fault{Kind: fault.Cut, Rest: time.Second}.String())
	require.Equal(t, "black hole, 2.5s", fault.Fault{Kind: fault.Blackhole, Lasts: 2500 * time.Millisecond}.String())
}

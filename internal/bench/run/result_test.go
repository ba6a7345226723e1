package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	of := func(cpu, memory float64, errors int) *Result {
		return &Result{Subject: Ours, Legs: 7, Runs: 1, Figures: Figures{CPUPerRefresh: cpu, MemoryPerLeg: memory}, Counts: Counts{Errors: errors, Updates: errors}}
	}
	m := Median([]*Result{of(3, 10, 0), of(1, 30, 2), of(9, 20, 1)})
	require.Equal(t, Figures{CPUPerRefresh: 3, MemoryPerLeg: 20}, m.Figures, "each for itself")
	require.Equal(t, Counts{Errors: 2, Updates: 2}, m.Counts, "a run with errors is not hidden by others")
	require.Equal(t, 3, m.Runs)
	require.Equal(t, 7, m.Legs)

	m = Median([]*Result{of(3, 10, 0), of(1, 30, 0)})
	require.Equal(t, Figures{CPUPerRefresh: 2, MemoryPerLeg: 20}, m.Figures)
}

func TestMedianOfStorms(t *testing.T) {
	of := func(seconds, peak float64, missing int) *Result {
		return &Result{Counts: Counts{Errors: missing}, Storm: &Weather{Storm: Cut, Seconds: seconds, Peak: peak, Missing: missing}}
	}
	m := Median([]*Result{of(3, 10, 0), of(1, 30, 2), of(9, 20, 0)})
	require.Equal(t, &Weather{Storm: Cut, Seconds: 3, Peak: 20, Missing: 2}, m.Storm)
}

func TestQuantile(t *testing.T) {
	var sorted []time.Duration
	for n := range 200 {
		sorted = append(sorted, time.Duration(n+1)*time.Millisecond)
	}
	require.InDelta(t, 100, quantile(sorted, 0.5), 1e-9)
	require.InDelta(t, 198, quantile(sorted, 0.99), 1e-9)
	require.InDelta(t, 200, quantile(sorted, 1), 1e-9)
	require.InDelta(t, 1, quantile(sorted[:1], 0.99), 1e-9)
	require.Zero(t, quantile(nil, 0.5))
}

func TestPassedOn(t *testing.T) {
	require.Equal(t, []string{"PATH=/bin", "GOMEMLIMIT=90MiB"},
		passedOn([]string{"PATH=/bin", "NSM_NAME=mine", "GOMEMLIMIT=90MiB", "FLOOR_UPSTREAM=x"}))
}

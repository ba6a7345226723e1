package nsmgrproxy_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/nsmgrproxy"
)

func TestMetrics(t *testing.T) {
	inBubble(t, func(w *world) {
		reader := metric.NewManualReader()
		provider := metric.NewMeterProvider(metric.WithReader(reader))
		require.NoError(w, nsmgrproxy.Measure(w.Context(), w.chain, provider.Meter("test")))
		s, _ := w.watched(1)
		defer s.end()
		got := read(w, reader)
		for name, want := range map[string]int64{
			"connections": 1, "subscribers": 1, "map.entries": 0, "map.unusable": 0,
			"hop.connected passthrough:///" + farAddr: 1, "hop.connects passthrough:///" + farAddr: 1,
		} {
			require.Equal(w, want, got[name], "%s in %v", name, got)
		}
		require.Contains(w, got, "panics")
		require.Positive(w, got["hop.users passthrough:///"+farAddr])

		outages["at its start"](w)
		synctest.Wait()
		got = read(w, reader)
		require.Zero(w, got["hop.connected passthrough:///"+farAddr])
		require.Error(w, nsmgrproxy.Measure(w.Context(), nil, provider.Meter("test")))
	})
}

// read returns the values by name and target.
func read(w *world, reader metric.Reader) map[string]int64 {
	var all metricdata.ResourceMetrics
	require.NoError(w, reader.Collect(w.Context(), &all))
	values := make(map[string]int64)
	add := func(name string, points []metricdata.DataPoint[int64]) {
		for _, p := range points {
			if target, ok := p.Attributes.Value("target"); ok {
				values[fmt.Sprintf("%s %s", name, target.AsString())] = p.Value
				continue
			}
			values[name] = p.Value
		}
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			name := m.Name[len("nsmgr_proxy."):]
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				add(name, data.DataPoints)
			case metricdata.Sum[int64]:
				require.True(w, data.IsMonotonic)
				add(name, data.DataPoints)
			}
		}
	}
	return values
}

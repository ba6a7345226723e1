package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/run"
)

// good is what ours has to count with 10 legs and 2 rounds.
func good() *run.Result {
	return &run.Result{
		Subject: run.Ours, Role: neighbours.Outbound, Mode: load.Shared, Legs: 10, Rounds: 2,
		Counts: run.Counts{
			Refreshes: 20, ConnectionsFirst: 1, HandshakesFirst: 1, ConnectionsOpen: 1, Finds: 1,
			Downstream: 1, Streams: 10, InitialUp: 10, Updates: 20,
		},
	}
}

func TestCheckFindsEachWrongCount(t *testing.T) {
	require.NoError(t, check([]*run.Result{good()}))
	for what, spoil := range map[string]func(*run.Result){
		"errors":    func(r *run.Result) { r.Errors++ },
		"refreshes": func(r *run.Result) { r.Refreshes-- },
		"upstream connections for first Requests": func(r *run.Result) { r.ConnectionsFirst++ },
		"upstream connections for refreshes":      func(r *run.Result) { r.ConnectionsRefresh++ },
		"TLS handshakes for them":                 func(r *run.Result) { r.HandshakesFirst = 0 },
		"upstream connections at the end":         func(r *run.Result) { r.ConnectionsOpen = 2 },
		"look-ups: ":                              func(r *run.Result) { r.Finds = 20 },
		"look-ups by refreshes":                   func(r *run.Result) { r.FindsRefresh = 1 },
		"other events":                            func(r *run.Result) { r.Others++ },
		"monitor streams":                         func(r *run.Result) { r.Streams, r.InitialUp = 9, 9 },
		"initial states with the connection":      func(r *run.Result) { r.InitialUp = 0 },
		"UPDATEs":                                 func(r *run.Result) { r.Updates++ },
		"downstream handshakes":                   func(r *run.Result) { r.Downstream = 30 },
	} {
		r := good()
		spoil(r)
		err := check([]*run.Result{good(), r})
		require.ErrorContains(t, err, "ours, outbound, shared: "+what)
		require.NotContains(t, err.Error(), "\n", what)
	}
}

func TestCheckOfTheOthers(t *testing.T) {
	redialled := good()
	redialled.Mode, redialled.Streams, redialled.InitialUp, redialled.Updates, redialled.Downstream = load.Redial, 30, 30, 0, 30
	require.NoError(t, check([]*run.Result{redialled}))

	floor := good()
	floor.Subject, floor.InitialUp = run.Floor, 0
	require.NoError(t, check([]*run.Result{floor}))

	stock := good()
	stock.Subject = run.Stock
	require.ErrorContains(t, check([]*run.Result{stock}), "upstream connections for refreshes: 0, want 20")
	stock.ConnectionsFirst, stock.ConnectionsRefresh = 10, 20
	require.NoError(t, check([]*run.Result{stock}))
}

func TestCheckOfStorms(t *testing.T) {
	storm := func(subject run.Subject, kind run.Storm, dials int) *run.Result {
		return &run.Result{
			Subject: subject, Role: neighbours.Outbound, Mode: load.Shared, Legs: 10,
			Counts: run.Counts{Streams: 10}, Storm: &run.Weather{Storm: kind, Dials: dials},
		}
	}
	require.NoError(t, check([]*run.Result{
		storm(run.Ours, run.Cut, 1), storm(run.Ours, run.Establish, 1), storm(run.Floor, run.Establish, 1), storm(run.Ours, run.Subscribe, 0),
	}))
	for what, spoil := range map[string]func(*run.Result){
		"errors":          func(r *run.Result) { r.Errors++ },
		"DOWNs":           func(r *run.Result) { r.Downs++ },
		"other events":    func(r *run.Result) { r.Others++ },
		"legs missing":    func(r *run.Result) { r.Storm.Missing++ },
		"monitor streams": func(r *run.Result) { r.Streams++ },
		"upstream dials":  func(r *run.Result) { r.Storm.Dials++ },
	} {
		r := storm(run.Ours, run.Cut, 1)
		spoil(r)
		err := check([]*run.Result{r})
		require.ErrorContains(t, err, "ours, outbound, shared, cut: "+what)
		require.NotContains(t, err.Error(), "\n", what)
	}
	stock := storm(run.Stock, run.Cut, 0)
	require.ErrorContains(t, check([]*run.Result{stock}), "DOWNs: 0, want 10")
	stock.Downs, stock.Storm.Missing = 10, 10
	require.NoError(t, check([]*run.Result{stock}))
}

package main

import (
	"errors"
	"fmt"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/load"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/neighbours"
	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/bench/run"
)

// check holds the counts against what they have to be. No time is looked at, so
// a busy machine changes nothing.
func check(results []*run.Result) error {
	var faults []error
	for _, r := range results {
		name := fmt.Sprintf("%s, %s, %s", r.Subject, r.Role, r.Mode)
		if r.Storm != nil {
			name += ", " + string(r.Storm.Storm)
		}
		want := func(what string, want, got int) {
			if got != want {
				faults = append(faults, fmt.Errorf("bench: %s: %s: %d, want %d", name, what, got, want))
			}
		}
		want("errors", 0, r.Errors)
		if r.Storm != nil {
			checkStorm(r, want)
			continue
		}
		refreshes := r.Legs * r.Rounds
		want("refreshes", refreshes, r.Refreshes)
		switch r.Subject {
		case run.Stock:
			// That it dials for each Request shows that the counting bites.
			want("upstream connections for first Requests", r.Legs, r.ConnectionsFirst)
			want("upstream connections for refreshes", refreshes, r.ConnectionsRefresh)
			continue
		case run.Floor:
			want("initial states with the connection", 0, r.InitialUp)
		case run.Ours:
			want("initial states with the connection", r.Streams, r.InitialUp)
			want("look-ups by refreshes", 0, r.FindsRefresh)
			if r.Role == neighbours.Outbound {
				// What passes through is learned from. Inbound, those who come in
				// the same moment share one.
				want("look-ups", 1, r.Finds)
			}
		}
		want("upstream connections for first Requests", 1, r.ConnectionsFirst)
		want("TLS handshakes for them", 1, r.HandshakesFirst)
		want("upstream connections for refreshes", 0, r.ConnectionsRefresh)
		want("upstream connections at the end", 1, r.ConnectionsOpen)
		want("other events", 0, r.Others)
		if r.Mode == load.Shared {
			want("monitor streams", r.Legs, r.Streams)
			want("UPDATEs", refreshes, r.Updates)
			want("downstream handshakes", 1, r.Downstream)
		} else {
			want("monitor streams", r.Legs+refreshes, r.Streams)
			want("UPDATEs", 0, r.Updates)
			want("downstream handshakes", r.Legs+refreshes, r.Downstream)
		}
	}
	return errors.Join(faults...)
}

// checkStorm holds the counts of a storm against what they have to be.
func checkStorm(r *run.Result, want func(what string, want, got int)) {
	if r.Subject == run.Stock {
		// That it tells each leg as DOWN, and watches none again, shows that the
		// counting bites.
		want("DOWNs", r.Legs, r.Downs)
		want("legs missing", r.Legs, r.Storm.Missing)
		return
	}
	want("DOWNs", 0, r.Downs)
	want("other events", 0, r.Others)
	want("legs missing", 0, r.Storm.Missing)
	want("monitor streams", r.Legs, r.Streams)
	dials := 1
	if r.Storm.Storm == run.Subscribe {
		dials = 0
	}
	want("upstream dials", dials, r.Storm.Dials)
}

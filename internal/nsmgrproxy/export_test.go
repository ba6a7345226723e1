package nsmgrproxy

import (
	"github.com/networkservicemesh/sdk/pkg/networkservice/chains/nsmgr"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/hop"
)

// Held is what a chain keeps.
type Held struct{ Legs, Watched, Subscribers, Hops int }

// HeldBy counts what a chain keeps at this moment.
func HeldBy(chain nsmgr.Nsmgr) Held {
	s := chain.(*server)
	h := Held{Legs: s.legs.Len(), Hops: s.pool.Len()}
	h.Watched, h.Subscribers = s.table.Len()
	return h
}

// HopsOf returns what a chain knows of its hops.
func HopsOf(chain nsmgr.Nsmgr) []hop.Status {
	s, _ := chain.(*server)
	return s.pool.Status()
}

// Parked has streams begun by others than those who wait for them.
var Parked = parked

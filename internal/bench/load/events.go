package load

import (
	"sync/atomic"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
)

// Counts are what came back.
type Counts struct {
	// Streams is the number of initial states, and InitialUp of those that held
	// the connection, UP.
	Streams, InitialUp int
	// Updates are the UPDATEs with state UP, and Others whatever is none of that.
	// Downs are those among the others that say DOWN of a connection.
	Updates, Others, Downs int
	// Errors are Requests that failed and streams that broke.
	Errors int
	// Handshakes are those of this side.
	Handshakes int
}

// events counts what all streams carry.
type events struct{ initial, initialUp, updates, others, downs atomic.Int64 }

func (e *events) note(event *networkservice.ConnectionEvent) {
	up := len(event.GetConnections()) == 1
	for _, conn := range event.GetConnections() {
		up = up && conn.GetState() == networkservice.State_UP
		if conn.GetState() == networkservice.State_DOWN {
			e.downs.Add(1)
		}
	}
	switch {
	case event.GetType() == networkservice.ConnectionEventType_INITIAL_STATE_TRANSFER:
		e.initial.Add(1)
		if up {
			e.initialUp.Add(1)
		} else if len(event.GetConnections()) > 0 {
			e.others.Add(1)
		}
	case event.GetType() == networkservice.ConnectionEventType_UPDATE && up:
		e.updates.Add(1)
	default:
		e.others.Add(1)
	}
}

func (e *events) counts() Counts {
	return Counts{
		Streams:   int(e.initial.Load()),
		InitialUp: int(e.initialUp.Load()),
		Updates:   int(e.updates.Load()),
		Others:    int(e.others.Load()),
		Downs:     int(e.downs.Load()),
	}
}

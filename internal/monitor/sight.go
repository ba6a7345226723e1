package monitor

import (
	"context"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"github.com/networkservicemesh/sdk/pkg/tools/spire"
)

// Tokens in a path are bearer tokens. The previous hop of a connection has seen
// them all; whoever else watches sees the connection without them.

// peerOf returns the SPIFFE ID of a caller, empty where it has none.
func peerOf(ctx context.Context) string {
	id, err := spire.PeerSpiffeIDFromContext(ctx)
	if err != nil {
		return ""
	}
	return id.String()
}

// mayRead tells whether a subscriber may see the tokens of a leg. Without TLS
// there are no identities to tell apart.
func (e *entry) mayRead(id string) bool { return e.owner == "" || e.owner == id }

// bare is a connection without tokens.
func bare(conn *networkservice.Connection) *networkservice.Connection {
	conn = conn.Clone()
	for _, segment := range conn.GetPath().GetPathSegments() {
		segment.Token = ""
	}
	return conn
}

// eventOf wraps one connection.
func eventOf(kind networkservice.ConnectionEventType, conn *networkservice.Connection) *networkservice.ConnectionEvent {
	return &networkservice.ConnectionEvent{
		Type:        kind,
		Connections: map[string]*networkservice.Connection{conn.GetId(): conn},
	}
}

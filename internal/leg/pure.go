package leg

import (
	"context"

	"github.com/networkservicemesh/api/pkg/api/networkservice"
	"google.golang.org/protobuf/proto"
)

// Pure tells whether the current Request asks for nothing new: against the last
// good one, nothing but tokens, expiries and metrics differ. What its caller had
// been answered counts as asked for.
func Pure(ctx context.Context) bool {
	l := FromContext(ctx)
	if l == nil || !l.established || l.incoming == nil {
		return false
	}
	last := l.lastRequest()
	if pure(l.incoming, last) {
		return true
	}
	if !l.answered.Set() {
		return false
	}
	last.Connection = l.answered.Unpack()
	return pure(l.incoming, last)
}

func pure(incoming, last *networkservice.NetworkServiceRequest) bool {
	if incoming.GetConnection().GetState() == networkservice.State_RESELECT_REQUESTED {
		return false
	}
	if len(incoming.GetMechanismPreferences()) > 0 && !sameMechanisms(incoming.GetMechanismPreferences(), last.GetMechanismPreferences()) {
		return false
	}
	return proto.Equal(essence(incoming.GetConnection()), essence(last.GetConnection()))
}

func sameMechanisms(a, b []*networkservice.Mechanism) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !proto.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// essence is a connection without what every refresh changes.
func essence(conn *networkservice.Connection) *networkservice.Connection {
	bare := conn.Clone()
	bare.State = networkservice.State_UP
	for _, segment := range bare.GetPath().GetPathSegments() {
		segment.Token, segment.Expires, segment.Metrics = "", nil, nil
	}
	return bare
}

type stopgapKey struct{}

// WithStopgap says that there is an answer to the current Request should the hop
// fail. Ready tells whether that is so at the moment it is asked.
func WithStopgap(ctx context.Context, ready func() bool) context.Context {
	return context.WithValue(ctx, stopgapKey{}, ready)
}

// HasStopgap tells whether the current Request could be answered without the far
// side: there is no need then to spend its caller's time on a hop that is down.
func HasStopgap(ctx context.Context) bool {
	ready, ok := ctx.Value(stopgapKey{}).(func() bool)
	return ok && ready()
}

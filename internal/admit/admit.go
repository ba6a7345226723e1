// Package admit keeps the process inside its memory whatever its peers do: what
// they make it hold is counted, by the SPIFFE ID that causes it, and refused when it
// is too much.
//
// There are two rooms of bytes (room.go). The large one is for legs, each with a
// connection and a monitor stream of its own. The small one is for what floods are
// made of: other connections and streams, calls under way, what has come of a message
// that is not complete, large messages. It is what legs leave of the whole, between
// bounds. A peer may hold as much as a factor times what is free then, so one that is
// alone gets nearly all and some is left for the next. No number is fixed for a peer:
// all of a remote domain may come with one ID.
//
// Under failure:
//
//   - A connection for which there is no room is closed after its handshake, which
//     tells whose it is. Handshakes wait for their turn, a while, once they have begun.
//   - A call waits for its turn, a while, and takes less meanwhile. One for which there
//     is no room even so is ResourceExhausted, before its message is read. So is a
//     message that is too large for what is free, and the first Request of a leg. Legs
//     that are there stay; each lets its peer have a refresh under way, a few at a time,
//     however full the small room is.
//   - A call is held to be there until it has ended here, also where its caller left
//     long before, and until what goes on behind it has (Behind). It is released however
//     it ends, by a panic as well.
//   - A connection is read from slowly while calls of it wait to be looked at, and after
//     one has been refused: refusals take memory, too.
//   - A connection is not read from while its peer does not take what it is sent; gRPC's
//     ping ends that. Nor is it while there is no room for messages that are not
//     complete: for stallTimeout, then it is closed. Others are not held up.
//
// The room's mutex guards all that is counted. It is a leaf: nothing is called, read or
// written under it.
package admit

import (
	"context"
	"fmt"
	"sync"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/leg"
)

// defaultLimit is for a process whose memory nobody has limited: ten thousand legs of
// one peer fit, each with a connection of its own.
const defaultLimit = 2 << 30

// Admission decides on what peers may make the process hold.
type Admission struct {
	room       *room
	silents    *silents
	handshakes *handshakes
	// log is told of connections and calls that are refused. How often it says so is
	// its own affair.
	log log.Logger
}

// New makes an admission for a process that may have that many bytes of memory, or
// nobody knows how many, which is 0.
func New(limit int64, logger log.Logger) *Admission {
	a := &Admission{room: newRoom(limit), silents: new(silents), handshakes: newHandshakes(), log: logger}
	if limit == 0 {
		a.room = newRoom(defaultLimit)
	}
	return a
}

// ServerOptions are what a server needs beside the Credentials. Its methods have to be
// streams.
func (a *Admission) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(count),
		grpc.ChainStreamInterceptor(a.intercept),
		// Calls of what is not there are calls like others.
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unimplemented, "unknown method")
		}),
		grpc.ForceServerCodecV2(NewCodec()),
	}
}

// OpenLeg implements leg.Room.
func (a *Admission) OpenLeg(ctx context.Context) (leg.Place, error) {
	id := idOf(ctx)
	if p := a.room.openLeg(id); p != nil {
		return p, nil
	}
	return nil, exhausted("another connection", id)
}

// Behind is called by what goes on behind the handler of a call, before that
// returns: it counts as a call until end is called.
func Behind(ctx context.Context) (end func()) {
	c := connOf(ctx)
	if c == nil {
		return func() {}
	}
	h := c.room.add(c.holder.id, amount{bytes: requestCost}) // the connection may be gone, and its holder with it
	return sync.OnceFunc(func() { c.room.release(h, amount{bytes: requestCost}) })
}

// refuse tells of a call for which there is no room.
func (a *Admission) refuse(what, id string) error {
	a.log.Warnf("admit: no room for "+what+" of %q", id)
	return exhausted(what, id)
}

func exhausted(what, id string) error {
	return status.Error(codes.ResourceExhausted, fmt.Sprintf("nsmgr-proxy: no room for %s of %q", what, id))
}

// idOf is the SPIFFE ID of the caller, empty without TLS.
func idOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return spiffeID(p.AuthInfo)
}

func spiffeID(info credentials.AuthInfo) string {
	if info, ok := info.(credentials.TLSInfo); ok && info.SPIFFEID != nil {
		return info.SPIFFEID.String()
	}
	return ""
}

package nsmgrproxy

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/networkservicemesh/cmd-nsmgr-proxy/internal/guard"
)

const (
	// pingAfter keeps the flow of a silent client alive where the proxy on the
	// other side is a stock one, which keeps nothing alive itself: well under the
	// 30 s that some balancers allow.
	pingAfter = 20 * time.Second
	// pingTimeout is generous: it is TCP_USER_TIMEOUT as well, and a subscriber
	// that merely stalled must not lose its stream for it.
	pingTimeout = time.Minute
	// minPing is how often a client may ping. gRPC's default of 5 min would
	// expel peers that keep their own flow alive.
	minPing = 5 * time.Second
	// buffer is the size of each connection's read and write buffers. Forwarders
	// hold a connection for each of theirs, and most carry a message in minutes.
	buffer = 4 << 10
	// maxStreams bounds the calls on one connection: a neighbour that shares one
	// for ten thousand connections has a monitor stream for each.
	maxStreams = 20_000
	// streamWindow bounds what is received of a message before anybody reads it.
	// It is the least that gRPC knows; left to itself, gRPC widens it by what it
	// sees on the wire. Most messages have a tenth of it.
	streamWindow = 64 << 10
	// connWindow bounds what is under way on a connection, and nothing that is
	// kept: gRPC gives it back on receipt. It lets 10 MiB a second through at a
	// round trip of 100 ms, a thousand refreshes.
	connWindow = 1 << 20
	// handshakeTimeout ends a connection that does not finish its TLS and HTTP/2
	// handshakes. gRPC's default is two minutes.
	handshakeTimeout = 10 * time.Second
)

// ServerOptions are what the gRPC server in front of the chain has to be made
// with for the connections to stay up.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.ReadBufferSize(buffer),
		grpc.WriteBufferSize(buffer),
		grpc.SharedWriteBuffer(true),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxRecvMsgSize(guard.MaxMessage),
		grpc.MaxHeaderListSize(guard.MaxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
	}
}

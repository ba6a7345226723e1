package guard

import (
	"context"
	"runtime/debug"
	"sync/atomic"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// panics counts what was recovered since the start.
var panics atomic.Int64

// Panics returns how many panics have been recovered since the process started.
// Each is a defect of ours.
func Panics() int64 { return panics.Load() }

// recovered is deferred by every call.
func recovered(ctx context.Context, call string, err *error) {
	if cause := recover(); cause != nil {
		report(ctx, call, cause)
		*err = status.Errorf(codes.Internal, "nsmgr-proxy: internal error in %s", call)
	}
}

// Recover is deferred by goroutines of ours that handle what a peer has said. It
// ends the goroutine, not the process.
func Recover(ctx context.Context, what string) {
	if cause := recover(); cause != nil {
		report(ctx, what, cause)
	}
}

func report(ctx context.Context, where string, cause any) {
	panics.Add(1)
	// Where is part of the format, so that panics in two places are two kinds.
	log.FromContext(ctx).Errorf("panic in "+where+": %v\n%s", cause, stack(debug.Stack()))
}

package guard

import (
	"context"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// logged is deferred by calls whose failure an operator wants to know of. It says
// it once, however many elements and tries it went through.
func logged(ctx context.Context, call, id string, err *error) {
	if *err == nil {
		return
	}
	logger := log.FromContext(ctx).WithField("connection", printable(id))
	switch status.Code(*err) {
	case codes.Canceled:
		logger.Debugf("%s: %v", call, *err)
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition:
		logger.Infof("%s refused: %v", call, *err)
	default:
		logger.Warnf("%s failed: %v", call, *err)
	}
}

// printable keeps what a stranger calls a connection from writing the log.
func printable(id string) string {
	if text("", id, maxName) != nil {
		return "(unprintable)"
	}
	return id
}

package hostile_test

import "strings"

// deadly tells the inputs that must not be sent, because the process would panic:
// a path in the headers with a segment that is null. Register of an endpoint ends
// the process, since the SDK's begin runs what is behind it in a goroutine of its
// own; the other calls are recovered and answer Internal. It is a defect to be
// mended, and this function goes with it.
func deadly(in *input) bool {
	return strings.HasPrefix(in.fault, pathHeader) && !strings.HasSuffix(in.method, "/Find") &&
		(strings.Contains(in.fault, "[null") || strings.Contains(in.fault, ",null]"))
}

// open tells the inputs that are sent and known to be answered wrongly. Each case
// is a defect to be mended, and goes with it.
func open(in *input) bool {
	switch {
	// A path in the headers whose index is past its end is Unknown.
	case strings.HasPrefix(in.fault, pathHeader) && strings.Contains(in.fault, `"Index":9`):
		return true
	// The context of a connection is not looked at.
	case strings.HasPrefix(strings.TrimPrefix(in.field, "connection."), "context."):
		return true
	// Nor are these two parts of a network service.
	case strings.HasPrefix(in.method, serviceRegistry) &&
		(strings.HasSuffix(in.field, "path_ids[0]") || strings.Contains(in.field, ".metadata.")):
		return true
	// Nor what nobody asks a subscription for, which is held as long as its stream.
	case in.method == monitorService+"MonitorConnections" &&
		(strings.Contains(in.field, ".metrics") || strings.Contains(in.field, ".expires")):
		return true
	}
	return false
}

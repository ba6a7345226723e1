package guard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
	"github.com/networkservicemesh/sdk/pkg/tools/spire"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxLine bounds a line of the log: an error through eight hops fits.
	maxLine = 1 << 10
	// maxDetail bounds a stack, and a line at DEBUG. A stack through the whole
	// chain has some 10 KiB.
	maxDetail = 16 << 10
)

// Log is what callers make the process say. They decide how often, and of what
// length, so:
//
//   - Of failed calls with the same peer, call and code, one is logged at once,
//     and then one every ten seconds at most, with how many there were between.
//     The same goes for warnings and errors of the elements behind, told apart by
//     their format. The others are lines at DEBUG, with their number.
//   - A line is cut at 1 KiB, has no control characters, and no token.
//   - It keeps a bounded number of kinds apart.
//
// What the elements say of a change, at INFO, is neither counted nor kept back.
type Log struct {
	log.Logger
	root    log.Logger
	limiter *limiter
}

// NewLog makes the log of the calls of one process.
func NewLog(logger log.Logger) *Log {
	return &Log{Logger: logger, root: logger, limiter: newLimiter()}
}

// in returns a context of which the elements behind get the log: that of an
// incoming call has none.
func (l *Log) in(ctx context.Context) context.Context { return log.WithLog(ctx, l) }

// failed is deferred by calls. It tells of the failure once, however many elements
// and tries that went through. What the call was about is a field of that name.
func (l *Log) failed(ctx context.Context, call, field, id string, err *error) {
	if *err == nil {
		return
	}
	code := status.Code(*err)
	if code == codes.Canceled || errors.Is(*err, context.Canceled) {
		l.with(field, id).Debugf("%s: %v", call, *err)
		return
	}
	peer := ""
	if id, err := spire.PeerSpiffeIDFromContext(ctx); err == nil {
		peer = printable(id.String())
	}
	logger := l.with(field, id).with("peer", peer)
	level, outcome := logger.Logger.Warnf, "failed"
	switch code {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition:
		level, outcome = logger.Logger.Infof, "refused"
	}
	logger.limited(level, kind{peer, call, code.String()}, "%s %s: %v", call, outcome, *err)
}

// with adds a field that has a value.
func (l *Log) with(field, value string) *Log {
	if value == "" {
		return l
	}
	return &Log{Logger: l.Logger.WithField(field, printable(value)), root: l.root, limiter: l.limiter}
}

// limited logs a line, or that it is one of many.
func (l *Log) limited(level func(string, ...any), k kind, format string, args ...any) {
	repeat, more, kept := l.limiter.count(k)
	for _, t := range kept {
		l.root.Infof("%d more like it: %s", t.more, t.kind)
	}
	most := maxLine
	if len(args) > 0 {
		if _, ok := args[len(args)-1].(stack); ok {
			most = maxDetail
		}
	}
	line := line{format: format, args: args, most: most}
	switch {
	case repeat > 0:
		line.most = maxDetail
		l.Logger.Debugf("%s (repeat %d)", line, repeat)
	case more > 0:
		level("%s (and %d more like it)", line, more)
	default:
		level("%s", line)
	}
}

// Errorf implements log.Logger.
func (l *Log) Errorf(format string, v ...any) {
	l.limited(l.Logger.Errorf, kind{what: short(format)}, format, v...)
}

// Error implements log.Logger.
func (l *Log) Error(v ...any) { l.Errorf("%s", fmt.Sprint(v...)) }

// Warnf implements log.Logger.
func (l *Log) Warnf(format string, v ...any) {
	l.limited(l.Logger.Warnf, kind{what: short(format)}, format, v...)
}

// Warn implements log.Logger.
func (l *Log) Warn(v ...any) { l.Warnf("%s", fmt.Sprint(v...)) }

// Infof implements log.Logger.
func (l *Log) Infof(format string, v ...any) {
	l.Logger.Infof("%s", line{format: format, args: v, most: maxLine})
}

// Info implements log.Logger.
func (l *Log) Info(v ...any) { l.Infof("%s", fmt.Sprint(v...)) }

// Debugf implements log.Logger.
func (l *Log) Debugf(format string, v ...any) {
	l.Logger.Debugf("%s", line{format: format, args: v, most: maxDetail})
}

// Debug implements log.Logger.
func (l *Log) Debug(v ...any) { l.Debugf("%s", fmt.Sprint(v...)) }

// Object implements log.Logger. Objects are whole requests, which others than we
// log at INFO.
func (l *Log) Object(k, v any) { l.Tracef("%v=%v", k, v) }

// WithField implements log.Logger.
func (l *Log) WithField(key, value any) log.Logger {
	return &Log{Logger: l.Logger.WithField(key, short(fmt.Sprint(value))), root: l.root, limiter: l.limiter}
}

// stack is the last argument of a line that may be as long as one.
type stack []byte

// line is made when it is written, which most lines at DEBUG never are.
type line struct {
	format string
	args   []any
	most   int
}

// token is what a JWT looks like, whole or cut: its first part is JSON, in base64.
var token = regexp.MustCompile(`\beyJ[\w-]{10,}(\.[\w-]*)*`)

// String has errors without their stacks: those of the SDK's are as long as the
// chain, and tell where the SDK made them.
func (l line) String() string {
	s := fmt.Sprintf(strings.ReplaceAll(l.format, "%+v", "%v"), l.args...)
	return cut(s, l.most)
}

// short is for what is kept as well: it holds no more than it shows.
func short(s string) string {
	if len(s) > maxLine {
		s = strings.Clone(s[:maxLine])
	}
	return cut(s, maxLine)
}

// cut takes out of a line what does not belong there.
func cut(s string, most int) string {
	size := len(s)
	s = token.ReplaceAllString(s[:min(most, size)], "(token)")
	if size > most {
		s = fmt.Sprintf("%s… (%d bytes)", s, size)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// printable keeps what a stranger calls a connection from writing the log.
func printable(id string) string {
	if text("", id, maxName) != nil {
		return "(unprintable)"
	}
	return id
}

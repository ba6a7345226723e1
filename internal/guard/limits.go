// Package guard stands at the edge: it answers malformed messages before any
// element sees them, and keeps a panic behind it from ending the process.
//
// What is promised: a message that passes has every part that the elements
// behind rely on, and no part that is larger than anything a mesh has use for.
// One that does not pass is InvalidArgument, naming the field; nothing has been
// looked up, kept or sent for it. A panic in a call becomes Internal, with a
// stack in the log and a count; what the call had changed by then is the
// elements' own affair. However often callers make the process say something, the
// log stays readable.
package guard

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/networkservicemesh/sdk/pkg/tools/interdomain"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// maxSegments bounds a path. A connection through one domain has 4 segments,
	// through two 8; a chain of pass-through endpoints over 5 domains, the longest
	// that the SDK tests, has 36.
	maxSegments = 128
	// maxName bounds names and ids. Kubernetes allows 253 bytes for a name, and
	// a name here may be two of them joined.
	maxName = 512
	// maxToken bounds a token. A JWT signed by an SVID has some 300 bytes.
	maxToken = 8 << 10
	// maxEntries bounds lists and maps: labels, parameters, services, mechanisms.
	maxEntries = 512
	// maxValue bounds the keys and values of labels and parameters.
	maxValue = 4 << 10
	// maxURL bounds the URL of an endpoint, which is remembered: a scheme, a host
	// name of 253 bytes at most, a port.
	maxURL = 512
	// maxContext bounds the context of a connection: addresses, routes, excluded
	// prefixes, DNS. A node with a thousand prefixes excluded has some 20 KiB.
	maxContext = 128 << 10
	// maxSelector bounds a selector, which is kept as long as its stream is: one
	// that names every segment of the longest path has a tenth of it.
	maxSelector = 64 << 10
	// farthest is how far ahead an expiry may lie. Tokens live for minutes, and
	// no SVID for years.
	farthest = 10 * 365 * 24 * time.Hour

	// MaxMessage bounds a message on the wire. A path of 128 segments, each with a
	// token, takes 55 KiB, the largest context 128 KiB more.
	MaxMessage = 256 << 10
	// MaxHeaders bounds the headers of a call. A token takes 0.4 KiB and a trace
	// 0.2. The path beside a registration is in them, too, as JSON with a token for
	// each segment: 0.5 KiB of it for a hop, so 30 of them fit.
	MaxHeaders = 16 << 10
)

// fault is what is wrong with one field.
type fault struct{ field, what string }

func (f *fault) Error() string { return f.field + ": " + f.what }

// GRPCStatus makes a fault InvalidArgument to those who only know gRPC.
func (f *fault) GRPCStatus() *status.Status { return status.New(codes.InvalidArgument, f.Error()) }

func faulty(field, format string, args ...any) error {
	return &fault{field: field, what: fmt.Sprintf(format, args...)}
}

// within says in what the field of a fault is. Names that are put together from parts
// are made where there is a fault only.
func within(outer string, err error) error {
	f, ok := errors.AsType[*fault](err)
	switch {
	case !ok:
		return err
	case f.field == "":
		return &fault{field: outer, what: f.what}
	default:
		return &fault{field: outer + "." + f.field, what: f.what}
	}
}

// first returns the first error of a list of checks.
func first(checks ...error) error {
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	return nil
}

// text checks a string that may be empty.
func text(field, s string, limit int) error {
	if len(s) > limit {
		return faulty(field, "%d bytes, more than %d", len(s), limit)
	}
	if i := controlIn(s); i >= 0 {
		return faulty(field, "control character at byte %d", i)
	}
	return nil
}

// controlIn returns where the first control character is, or -1. Names are of ASCII, and
// there are dozens in each message.
func controlIn(s string) int {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c == 0x7f:
			return i
		case c >= utf8.RuneSelf:
			if at := strings.IndexFunc(s[i:], unicode.IsControl); at >= 0 {
				return i + at
			}
			return -1
		}
	}
	return -1
}

// name checks a name or id that has to be there.
func name(field, s string) error {
	if s == "" {
		return faulty(field, "missing")
	}
	return text(field, s, maxName)
}

// domainName checks a name that may carry a domain.
func domainName(field, s string) error {
	if err := name(field, s); err != nil {
		return err
	}
	if strings.Count(s, "@") > 1 {
		return faulty(field, "more than one @")
	}
	if interdomain.Is(s) && (interdomain.Target(s) == "" || interdomain.Domain(s) == "") {
		return faulty(field, "nothing before or behind the @")
	}
	return nil
}

func count(field string, n int) error {
	if n > maxEntries {
		return faulty(field, "%d entries, more than %d", n, maxEntries)
	}
	return nil
}

func labels(field string, m map[string]string) error {
	if err := count(field, len(m)); err != nil {
		return err
	}
	for key, value := range m {
		if len(key) > maxValue || len(value) > maxValue {
			return faulty(field, "an entry of more than %d bytes", maxValue)
		}
	}
	return nil
}

// jwt checks the form of a token: three parts. What they say is for the policies.
func jwt(field, s string) error {
	if s == "" {
		return nil // a hop that has not been reached yet has none
	}
	if len(s) > maxToken {
		return faulty(field, "%d bytes, more than %d", len(s), maxToken)
	}
	dots, last := 0, -1
	for i := range len(s) {
		switch c := s[i]; {
		case base64URL[c]:
		case c == '.' && i > last+1:
			dots, last = dots+1, i
		default:
			return faulty(field, "not a JWT")
		}
	}
	if dots != 2 || last == len(s)-1 {
		return faulty(field, "not a JWT")
	}
	return nil
}

// base64URL has the characters of a token's parts.
var base64URL = func() (is [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=") {
		is[c] = true
	}
	return is
}()

// expiry checks a time that may be missing.
func expiry(field string, t *timestamppb.Timestamp) error {
	if t == nil {
		return nil
	}
	if err := t.CheckValid(); err != nil {
		return faulty(field, "not a time")
	}
	if time.Until(t.AsTime()) > farthest {
		return faulty(field, "more than ten years ahead")
	}
	return nil
}

// Package logtest keeps what is logged, for tests that judge it.
package logtest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/networkservicemesh/sdk/pkg/tools/log"
)

// Lines is a logger that writes to memory, from DEBUG on: a level, fields and a
// text a line.
type Lines struct {
	store  *store
	fields string
}

type store struct {
	// mu guards all following fields.
	mu    sync.Mutex
	lines []string
}

var _ log.Logger = (*Lines)(nil)

// New makes an empty one.
func New() *Lines { return &Lines{store: new(store)} }

// All returns the lines that have a part in them, in their order.
func (l *Lines) All(part string) []string {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	var lines []string
	for _, line := range l.store.lines {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (l *Lines) write(level, text string) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.store.lines = append(l.store.lines, level+l.fields+" "+text)
}

// WithField implements log.Logger.
func (l *Lines) WithField(key, value any) log.Logger {
	return &Lines{store: l.store, fields: fmt.Sprintf("%s [%v:%v]", l.fields, key, value)}
}

// Debug implements log.Logger, as all that follow.
func (l *Lines) Debug(v ...any) { l.write("DEBUG", fmt.Sprint(v...)) }

// Debugf formats.
func (l *Lines) Debugf(format string, v ...any) { l.write("DEBUG", fmt.Sprintf(format, v...)) }

// Info does not format.
func (l *Lines) Info(v ...any) { l.write("INFO", fmt.Sprint(v...)) }

// Infof formats.
func (l *Lines) Infof(format string, v ...any) { l.write("INFO", fmt.Sprintf(format, v...)) }

// Warn does not format.
func (l *Lines) Warn(v ...any) { l.write("WARN", fmt.Sprint(v...)) }

// Warnf formats.
func (l *Lines) Warnf(format string, v ...any) { l.write("WARN", fmt.Sprintf(format, v...)) }

// Error does not format.
func (l *Lines) Error(v ...any) { l.write("ERROR", fmt.Sprint(v...)) }

// Errorf formats.
func (l *Lines) Errorf(format string, v ...any) { l.write("ERROR", fmt.Sprintf(format, v...)) }

// Fatal ends nothing.
func (l *Lines) Fatal(v ...any) { l.write("FATAL", fmt.Sprint(v...)) }

// Fatalf ends nothing.
func (l *Lines) Fatalf(format string, v ...any) { l.write("FATAL", fmt.Sprintf(format, v...)) }

// Trace is below DEBUG.
func (*Lines) Trace(...any) {}

// Tracef is below DEBUG.
func (*Lines) Tracef(string, ...any) {}

// Object is at INFO in the SDK's loggers.
func (l *Lines) Object(k, v any) { l.Infof("%v=%v", k, v) }

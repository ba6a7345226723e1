package app

import (
	"runtime/debug"
	"strings"
)

// version tells which build this is, from what the Go tool has put into it: the
// module's version, the commit if it was built in a checkout, and the compiler.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown version"
	}
	parts := []string{info.Main.Version}
	if parts[0] == "" {
		parts[0] = "(devel)" // what later versions of Go write for the same
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			parts = append(parts, s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			parts = append(parts, "modified")
		}
	}
	return strings.Join(append(parts, info.GoVersion), " ")
}

// Package memory finds out how much memory the process may have, and tells the Go
// runtime.
//
// The shipped manifest limits it to 100 MiB, which the runtime does not know of: it
// lets the heap grow to twice of what is in use, and a process with a thousand
// connections is ended from outside though half as much would do. Told of the limit it
// collects more often instead, which costs CPU near the limit and nothing far from it.
// What is in use beyond the limit it cannot help.
package memory

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// share of the limit is the runtime's. The rest is for what it does not count:
	// the binary's pages, and what it needs while it gives memory back.
	share = 0.9
	// most is what no machine has. Control groups give a number past it for no limit.
	most = 1 << 50
)

// growth is by how much of what is in use the heap grows before it is collected, in
// percent. At 80 a connection took 53 KiB, at this 48, for a twentieth more of CPU; at the
// runtime's own 100, where each has a TLS connection of its own, it took a tenth more than
// at 80.
const growth = 70

// CollectEarlier has the collector begin a little earlier than by itself, unless GOGC has
// told it when.
func CollectEarlier() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growth)
	}
}

// Limit returns how much the process may have, in bytes: the limit of its control
// group or, if that is less, what GOMEMLIMIT is the runtime's share of. It returns 0
// where there is neither. It has the runtime keep below the group's unless GOMEMLIMIT
// has told it something already.
func Limit() int64 {
	limit := groupLimit(os.DirFS("/"))
	if os.Getenv("GOMEMLIMIT") == "" {
		if limit > 0 {
			debug.SetMemoryLimit(int64(share * float64(limit)))
		}
		return limit
	}
	// Without a number, as with "off", it is past any.
	if told := float64(debug.SetMemoryLimit(-1)) / share; told < most && (limit == 0 || told < float64(limit)) {
		return int64(told)
	}
	return limit
}

// groupLimit returns the lowest limit of the process's control groups, of either
// version, or 0. In a container the path may be that of another namespace, so the
// root is looked at in any case.
func groupLimit(root fs.FS) int64 {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	lowest := int64(0)
	for line := range strings.Lines(string(groups) + "0::/\n0:memory:/\n") {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case len(parts) != 3:
			continue
		case parts[1] == "": // version 2
		case strings.Contains(","+parts[1]+",", ",memory,"):
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Join("/", parts[2]); ; dir = path.Dir(dir) {
			if limit := read(root, path.Join(mount, dir, file)); limit > 0 && (lowest == 0 || limit < lowest) {
				lowest = limit
			}
			if dir == "/" {
				break
			}
		}
	}
	return lowest
}

// read returns the limit in a file, or 0 if there is none.
func read(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || limit < 0 || limit >= most {
		return 0
	}
	return limit
}

package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of times in /proc, the same on every architecture that Go
// runs on.
const tick = time.Second / 100

// attributes give a child a group of its own, and end it when this process
// ends in whatever way. The signal comes when the thread that started the
// child ends, so that thread has to be kept.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Usage returns what the process has used, itself without its children. It
// returns false if that cannot be known, such as after its end.
func (p *Process) Usage() (Usage, bool) {
	folder := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	stat, err := os.ReadFile(folder + "stat")
	if err != nil {
		return Usage{}, false
	}
	status, err := os.ReadFile(folder + "status")
	if err != nil {
		return Usage{}, false
	}
	cpu, ok := cpuOf(stat)
	memory, known := anonymousOf(status)
	return Usage{CPU: cpu, Memory: memory}, ok && known
}

// cpuOf reads utime and stime, the 14th and 15th field. The second one is the
// command in brackets, which may hold anything.
func cpuOf(stat []byte) (time.Duration, bool) {
	const first, utime, stime = 3, 14, 15
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if end < 0 || len(fields) <= stime-first {
		return 0, false
	}
	var sum time.Duration
	for _, field := range []string{fields[utime-first], fields[stime-first]} {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, false
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, true
}

// anonymousOf reads a line such as "RssAnon:      12345 kB".
func anonymousOf(status []byte) (int64, bool) {
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "RssAnon:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

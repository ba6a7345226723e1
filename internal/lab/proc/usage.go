package proc

import "time"

// Usage is what a process has used so far.
type Usage struct {
	CPU    time.Duration // user and system, of all threads, to 10 ms or so
	Memory int64         // bytes of anonymous memory that are resident now
}

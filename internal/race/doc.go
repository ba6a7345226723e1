// Package race tells a test whether the race detector watches it, so that it can
// pass that on to the processes it starts.
package race

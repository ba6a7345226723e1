//go:build race

package sdksuite

// raceEnabled passes the race detector on to the process that runs the suite.
const raceEnabled = true

//go:build race

package hostile_test

// raceEnabled passes the race detector on to the process under test.
const raceEnabled = true

//go:build race

package race

// Enabled is whether this binary is built with the race detector.
const Enabled = true

//go:build race

package hop_test

// figureLegs is small under the race detector, which makes everything slower
// and looks for other things than numbers.
const figureLegs = 200

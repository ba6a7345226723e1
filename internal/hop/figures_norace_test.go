//go:build !race

package hop_test

const figureLegs = 1000

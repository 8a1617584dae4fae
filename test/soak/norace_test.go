//go:build !race

package soak

// How much there is to do in memory unless the environment says otherwise.
const (
	memoryCycles = 3000
	memoryFrames = 50000
	exactFrames  = 2000

	raceFlag = "" // of go test
)

//go:build race

package soak

// Defaults under the race detector, which makes the tests ten times as slow.
const (
	memoryCycles = 150
	memoryFrames = 1250
	exactFrames  = 300

	raceFlag = " -race" // of go test
)

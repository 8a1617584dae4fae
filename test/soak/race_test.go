//go:build race

package soak

// The race detector makes all of it ten times as slow.
const (
	memoryCycles = 300
	memoryFrames = 1250
	exactFrames  = 300

	raceFlag = " -race" // of go test
)

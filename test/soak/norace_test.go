//go:build !race

package soak

// Defaults of the tests in memory, which environment variables override.
const (
	memoryCycles = 3000
	memoryFrames = 50000
	exactFrames  = 2000

	raceFlag = "" // of go test
)

//go:build race

package soak

// The race detector makes all of it ten times as slow.
const (
	memoryCycles = 300
	memoryFrames = 2500
	exactFrames  = 300
)

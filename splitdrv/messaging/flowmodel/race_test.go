//go:build race

package flowmodel

// The model has one thread for each run: the race detector only makes it slow.
const runs = 200

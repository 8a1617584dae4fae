//go:build !race

package flowmodel

// runs is the number of runs in each mode.
const runs = 5000

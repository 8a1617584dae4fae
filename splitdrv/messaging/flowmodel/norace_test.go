//go:build !race

package flowmodel

// runs is how many there are in each mode.
const runs = 5000

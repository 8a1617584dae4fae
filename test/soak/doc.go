// Package soak connects two endpoints, moves frames between them and takes them
// apart again, thousands of times over, some of them in the middle of it, and
// looks whether all frames came and nothing is left behind. docs/testing.md
// says how it is run for hours and how a failure is replayed.
package soak

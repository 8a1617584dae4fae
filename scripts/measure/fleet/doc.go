// Package fleet simulates how the hosts of many I/O units find another I/O unit when they lose
// theirs. Package uplink decides what a host does, as in a real host. How long it takes is a
// model, whose figures docs/scale.md takes from docs/benchmarks.md. It has only tests: TestScale
// shows the table of docs/scale.md.
package fleet

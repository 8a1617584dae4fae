package main

// Metrics, and the measurement that has no traffic.
const (
	throughput  = "throughput"
	rate        = "rate"
	offered     = "offered"
	frameRate   = "frames"
	frameSize   = "frame size"
	cpuProcess  = "processor time, process"
	cpuMachine  = "processor time, machine"
	allocations = "allocations"
	halfCalls   = "system calls of a half"

	idle     = "idle"
	idleHalf = "use of a processor, each half"
	idleAll  = "use of a processor"
)

package native

// Metrics, and the measurements with separate goals: without traffic, and pings.
const (
	throughput    = "throughput"
	rate          = "rate"
	offered       = "offered"
	frameRate     = "frames"
	frameSize     = "frame size"
	median50      = "p50"
	median99      = "p99"
	average       = "average"
	cpuProcess    = "processor time, process"
	cpuMachine    = "processor time, machine"
	allocations   = "allocations"
	endpointCalls = "system calls of an endpoint"
	callMetric    = "calls of " // and the name of a system call

	idle         = "idle"
	pingName     = "ping"
	idleEndpoint = "use of a processor, each endpoint"
	idleAll      = "use of a processor"
)

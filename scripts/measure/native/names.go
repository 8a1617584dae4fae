package native

// Metrics, and the measurement that has no traffic.
const (
	throughput  = "throughput"
	rate        = "rate"
	offered     = "offered"
	frameRate   = "frames"
	frameSize   = "frame size"
	median50    = "p50"
	median99    = "p99"
	average     = "average"
	cpuProcess  = "processor time, process"
	cpuMachine  = "processor time, machine"
	allocations = "allocations"
	halfCalls   = "system calls of a half"
	callMetric  = "calls of " // and the name of a system call

	idle     = "idle"
	idleHalf = "use of a processor, each half"
	idleAll  = "use of a processor"
)

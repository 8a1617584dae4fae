package softroce

import "github.com/splitnic/splitnic/scripts/measure/results"

// Names of subjects, for comparisons and goals.
const (
	writeBW   = "ib_write_bw"
	writeLat  = "ib_write_lat"
	yardstick = "yardstick"
	splitnic  = "splitnic"
	events    = "-events" // suffix of a subject that sleeps instead of polling
	idle      = splitnic + "-idle"
	direct    = splitnic + "-direct" // two hosts with a direct connection
	indirect  = splitnic + "-unit"   // two hosts through their I/O unit
)

// copyLoop is a process that reads frames from a TAP device and writes them to a port on the
// LAN, and back.
const copyLoop = "copy-loop"

// rawMbps is the key of what the device can move between its two ends, measured in turn with the
// networks.
var rawMbps = results.Key{Group: "net", Subject: writeBW, Size: 65536, Queues: 1, Metric: "bandwidth"}

// perftestSize returns the size of the messages of perftest to which messages of size are
// compared: immediate data can express 65535 at most.
func perftestSize(size int) int {
	if size == 65535 {
		return 65536
	}
	return size
}

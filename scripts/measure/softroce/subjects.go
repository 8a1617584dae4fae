package softroce

import "github.com/splitnic/splitnic/scripts/measure/results"

// Subjects that others are compared to.
const (
	writeBW   = "ib_write_bw"
	writeLat  = "ib_write_lat"
	yardstick = "yardstick"
	splitnic  = "splitnic"
	events    = "-events" // the same subject, sleeping instead of polling
	idle      = splitnic + "-idle"
	direct    = splitnic + "-direct" // two hosts with a direct connection
	indirect  = splitnic + "-unit"   // through their I/O unit
)

// copyLoop is one process that reads frames from a TAP device and writes them to a
// port on the LAN, and back.
const copyLoop = "copy-loop"

// rawMbps is what the device can move between its two ends, measured in turn
// with the networks.
var rawMbps = results.Key{Group: "net", Subject: writeBW, Size: 65536, Queues: 1, Metric: "bandwidth"}

// perftestSize is the size of perftest's messages that are compared to those of
// size: immediate data can tell 65535 at most.
func perftestSize(size int) int {
	if size == 65535 {
		return 65536
	}
	return size
}

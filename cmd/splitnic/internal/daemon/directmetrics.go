package daemon

import (
	"github.com/splitnic/splitnic/splitdrv/direct"
)

var (
	descHostDirect      = desc("splitnic_direct_connections", "Direct connections to other hosts, by state.", "state")
	descHostDirectEnded = desc("splitnic_direct_ended_total", "Direct connections that have ended.")
	descDirectFrames    = desc("splitnic_direct_frames_total",
		"Frames that went directly, to other hosts (tx) and from them (rx).", "direction")
	descDirectBytes   = desc("splitnic_direct_bytes_total", "Bytes of those frames.", "direction")
	descDirectDropped = desc("splitnic_direct_dropped_total",
		"Frames of direct connections that were dropped: from other hosts, for their source, destination, VLAN or form "+
			"(malformed); to other hosts that are slow (full); lost or uncertain when a connection ended; for the I/O unit "+
			"because it took none (uplink).", "reason")
	descDirectMarkers = desc("splitnic_direct_unexpected_markers_total", "Markers that no direct connection expects.")
)

func hostDirectMetrics(emit emit, s *direct.Status) {
	states := map[direct.State]int{direct.Opening: 0, direct.Established: 0, direct.Ending: 0}
	for i := range s.Connections {
		states[s.Connections[i].State]++
	}
	for state, n := range states {
		emit.gauge(descHostDirect, float64(n), string(state))
	}
	c := &s.Total
	emit.count(descHostDirectEnded, c.Ended)
	emit.count(descDirectFrames, c.OutFrames, "tx")
	emit.count(descDirectFrames, c.InFrames, "rx")
	emit.count(descDirectBytes, c.OutBytes, "tx")
	emit.count(descDirectBytes, c.InBytes, "rx")
	for reason, n := range map[string]uint64{
		"source": c.Source, "destination": c.Destination, "vlan": c.VLAN, "malformed": c.Malformed, "full": c.Full,
		"lost": c.Lost, "uncertain": c.Uncertain, "uplink": s.UplinkFull,
	} {
		emit.count(descDirectDropped, n, reason)
	}
	emit.count(descDirectMarkers, s.Markers)
}

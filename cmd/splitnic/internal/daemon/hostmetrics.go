package daemon

import (
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
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

var (
	descFailovers = desc("splitnic_failovers_total",
		"Changes to another I/O unit since the start, by reason.", "reason")
	descReconnects     = desc("splitnic_reconnects_total", "Sessions that followed another one with the same I/O unit.")
	descFailoverFrames = desc("splitnic_failover_frames_total",
		"Frames of the host's that were on their way when a session ended: carried over to the next one, lost, or "+
			"uncertain, which is a bound.", "outcome")
	descFailoverTook = desc("splitnic_failover_last_seconds",
		"From the detection, or the beginning, of the last fail-over to the moment when frames could move again (part all), "+
			"and for how long they could not (part gap).", "part")
	descStandby = desc("splitnic_standby", "1 while a session is ready with another I/O unit.")
)

func failoverMetrics(emit emit, s *uplink.FailoverStatus) {
	for _, r := range uplink.Reasons() { // also those that did not occur
		emit.count(descFailovers, s.Count[r], string(r))
	}
	emit.count(descReconnects, s.Reconnects)
	emit.count(descFailoverFrames, s.Carried, "carried")
	emit.count(descFailoverFrames, s.Uncertain, "uncertain")
	emit.count(descFailoverFrames, s.Lost, "lost")
	if s.Last != nil {
		emit.gauge(descFailoverTook, s.Last.Took.Seconds(), "all")
		emit.gauge(descFailoverTook, s.Last.Gap.Seconds(), "gap")
	}
	emit.gauge(descStandby, flag(s.Standby != ""))
}

var (
	descDNSFailures = desc("splitnic_dns_failures_total",
		"Questions for the SRV records of a name that were answered with no I/O unit, or not at all.", "name")
	descDNSUnits    = desc("splitnic_dns_iounits", "I/O units in the last answer that named any.", "name")
	descDNSAnswered = desc("splitnic_dns_answered_timestamp_seconds",
		"Unix time of the last answer that named I/O units, 0 if there was none.", "name")
)

func dnsMetrics(emit emit, names []discovery.Status) {
	for i := range names {
		s := &names[i]
		emit.count(descDNSFailures, s.Failures, s.Name)
		emit.gauge(descDNSUnits, float64(s.Units), s.Name)
		answered := 0.0
		if !s.Answered.IsZero() {
			answered = float64(s.Answered.Unix())
		}
		emit.gauge(descDNSAnswered, answered, s.Name)
	}
}

var (
	descDevice = desc("splitnic_rdma_device_up", "1 while the RDMA device is there, 0 while it is gone.", "device")
	descLosses = desc("splitnic_rdma_device_losses_total",
		"How many times the RDMA device went away since the start.", "device")
	descEvents = desc("splitnic_rdma_device_events_total",
		"Asynchronous events of the RDMA device, by name; those of the whole device, in each card of an agent.", "device",
		"event")
)

// deviceMetrics emits what is known of an RDMA device; s is nil if nobody listens to it.
func deviceMetrics(emit emit, name string, s *device.Status) {
	if s == nil {
		return
	}
	emit = emit.with(name)
	emit.gauge(descDevice, flag(!s.Gone))
	emit.count(descLosses, s.Losses)
	emit.each(descEvents, fabric.EventKeys(), s.Events)
}

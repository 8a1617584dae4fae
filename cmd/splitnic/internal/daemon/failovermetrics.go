package daemon

import (
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

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

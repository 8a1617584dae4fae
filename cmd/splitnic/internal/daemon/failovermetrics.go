package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

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
		emit(descFailovers, prometheus.CounterValue, float64(s.Count[r]), string(r))
	}
	emit(descReconnects, prometheus.CounterValue, float64(s.Reconnects))
	emit(descFailoverFrames, prometheus.CounterValue, float64(s.Carried), "carried")
	emit(descFailoverFrames, prometheus.CounterValue, float64(s.Uncertain), "uncertain")
	emit(descFailoverFrames, prometheus.CounterValue, float64(s.Lost), "lost")
	if s.Last != nil {
		emit(descFailoverTook, prometheus.GaugeValue, s.Last.Took.Seconds(), "all")
		emit(descFailoverTook, prometheus.GaugeValue, s.Last.Gap.Seconds(), "gap")
	}
	emit(descStandby, prometheus.GaugeValue, flag(s.Standby != ""))
}

package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

var (
	descViolations = desc("splitnic_iounit_protocol_violations_total",
		"Sessions ended because a host broke the protocol, by rule.", "rule")
	descRefusals = desc("splitnic_iounit_refused_total",
		"Connections and hosts that got no session, by reason.", "reason")
	descElsewhere = desc("splitnic_iounit_elsewhere_total",
		"Hosts that connected to several I/O units at once and went to another one.")
	descEnded = desc("splitnic_iounit_sessions_ended_total",
		"Sessions that were established and have ended, by reason; queue-pair is also what the device refused.", "reason")
	descUnrevoked = desc("splitnic_iounit_frames_unrevoked_total",
		"Frames of hosts that had come and were not delivered, because the session ended before their one-touch windows "+
			"were invalid.")
	descCame        = desc("splitnic_iounit_connections_total", "Connections to the I/O unit.")
	descHandshaking = desc("splitnic_iounit_connections_in_handshake", "Connections on their way to a session.")
	descHandshakes  = desc("splitnic_iounit_handshakes_total", "TLS handshakes begun.")
	descDelayed     = desc("splitnic_iounit_handshakes_delayed_total",
		"TLS handshakes that had to wait for their turn, because others were at it or have taken too much of the processor.")
	descDirect      = desc("splitnic_iounit_direct_connections", "Direct connections between hosts, by step.", "step")
	descDirectEnded = desc("splitnic_iounit_direct_ended_total",
		"Direct connections between hosts that were offered or held and have ended, by reason.", "reason")
	descMemory    = desc("splitnic_iounit_registered_bytes", "Memory registered for all sessions.")
	descMemoryMax = desc("splitnic_iounit_registered_bytes_limit",
		"The most memory that may be registered (--max-memory); missing where there is no limit.")
	descLANUp = desc("splitnic_iounit_lan_up",
		"1 while the network card has carrier and is up, 0 also where its state cannot be read.")
	descDraining = desc("splitnic_iounit_draining", "1 while the I/O unit refuses hosts during maintenance.")
	descRate     = desc("splitnic_iounit_host_rate_limit_bits_per_second",
		"The most that the policy lets a host send (tx) or receive; missing where there is no bound.", "host", "key",
		"direction")
	descPPS = desc("splitnic_iounit_host_rate_limit_packets_per_second",
		"The most packets that the policy lets a host send (tx) or receive; missing where there is no "+
			"bound.", "host", "key", "direction")
	descGroupPPS = desc("splitnic_iounit_host_group_rate_limit_packets_per_second",
		"The most packets that the policy lets a host send to groups of the LAN, all of them together; "+
			"missing where there is no bound.", "host", "key")
	descPortUp  = desc("splitnic_iounit_host_up", "1 while the host wants its port on the LAN up.", "host", "key")
	descPromisc = desc("splitnic_iounit_host_promiscuous",
		"1 while the host gets frames that are not for it.", "host", "key")
	descGroups = desc("splitnic_iounit_host_groups", "Groups that the host receives for; -1 for all.", "host", "key")
	descVLANs  = desc("splitnic_iounit_host_vlans", "VLANs that the host receives.", "host", "key")
)

func unitMetrics(emit emit, s *iounit.Status) {
	emit.each(descViolations, iounit.Rules(), s.Violations)
	emit.each(descRefusals, iounit.Refusals(), s.Refusals)
	emit.count(descElsewhere, s.Elsewhere)
	emit.each(descEnded, iounit.Endings(), s.Ended)
	emit.gauge(descLANUp, flag(s.LAN.Up && s.LAN.Error == ""))
	emit.count(descUnrevoked, s.Unrevoked)
	emit.count(descCame, s.Bootstrap.Connections)
	emit.gauge(descHandshaking, float64(s.Bootstrap.Handshaking))
	emit.count(descHandshakes, s.Bootstrap.Handshakes)
	emit.count(descDelayed, s.Bootstrap.Delayed)
	emit.gauge(descMemory, float64(s.Memory.Used))
	if s.Memory.Limit > 0 {
		emit.gauge(descMemoryMax, float64(s.Memory.Limit))
	}
	emit.gauge(descDraining, flag(s.Drain != nil))
	if s.Direct != nil {
		directUnitMetrics(emit, s.Direct)
	}
}

func directUnitMetrics(emit emit, s *iounit.DirectStatus) {
	emitCounters(emit, directMetrics, counter.Values(nil, &s.DirectCounters))
	emit.each(descDirectEnded, iounit.DirectEndings(), s.Ended)
	steps := make(map[string]int)
	for i := range s.Pairs {
		steps[s.Pairs[i].Step]++
	}
	for _, step := range iounit.DirectSteps() {
		emit.gauge(descDirect, float64(steps[step]), step)
	}
}

func portMetrics(emit emit, p peer, h *iounit.HostStatus) {
	emit = emit.with(p.name, p.key)
	emitCounters(emit, portCounterMetrics, h.Counts())
	for _, limit := range []struct {
		desc      *prometheus.Desc
		direction string
		most      int64
	}{
		{descRate, "rx", h.MaxRxRate}, {descRate, "tx", h.MaxTxRate},
		{descPPS, "rx", h.MaxRxPPS}, {descPPS, "tx", h.MaxTxPPS},
	} {
		if limit.most > 0 {
			emit.gauge(limit.desc, float64(limit.most), limit.direction)
		}
	}
	if h.MaxTxGroupPPS > 0 {
		emit.gauge(descGroupPPS, float64(h.MaxTxGroupPPS))
	}
	emit.gauge(descPortUp, flag(h.Up))
	emit.gauge(descPromisc, flag(h.Filter.Promisc))
	groups := float64(len(h.Filter.Multicast))
	if h.Filter.AllMulti || h.Filter.Promisc {
		groups = -1
	}
	emit.gauge(descGroups, groups)
	emit.gauge(descVLANs, float64(h.VLANs.Len()))
}

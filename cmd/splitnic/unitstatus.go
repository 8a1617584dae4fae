package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/splitnic/splitnic/splitdrv/iounit"
)

var (
	descViolations = prometheus.NewDesc("splitnic_iounit_protocol_violations_total", "Sessions ended because a host broke the protocol, by rule.", []string{"rule"}, nil)
	descRefusals   = prometheus.NewDesc("splitnic_iounit_refused_total", "Connections and hosts that got no session, by reason.", []string{"reason"}, nil)
	descEnded      = prometheus.NewDesc("splitnic_iounit_sessions_ended_total", "Sessions that were established and have ended, by reason; queue-pair is also what the device refused.", []string{"reason"}, nil)
	descUnsealed   = prometheus.NewDesc("splitnic_iounit_frames_unsealed_total", "Frames of hosts that had come and were not delivered, because the session ended before their one-touch windows were invalid.", nil, nil)
	descCame       = prometheus.NewDesc("splitnic_iounit_connections_total", "Connections to the I/O unit.", nil, nil)
	descMeeting    = prometheus.NewDesc("splitnic_iounit_connections_in_handshake", "Connections on their way to a session.", nil, nil)
	descHandshakes = prometheus.NewDesc("splitnic_iounit_handshakes_total", "TLS handshakes begun.", nil, nil)
	descDelayed    = prometheus.NewDesc("splitnic_iounit_handshakes_delayed_total", "TLS handshakes that had to wait for their turn, because others were at it or have taken too much of the processor.", nil, nil)
	descHeartbeats = prometheus.NewDesc("splitnic_iounit_host_heartbeats_held_total", "Times that a host sent heartbeats so fast that they were left waiting, in the present session.", []string{"peer"}, nil)
	descMemory     = prometheus.NewDesc("splitnic_iounit_registered_bytes", "Memory registered for all sessions.", nil, nil)
	descMemoryMax  = prometheus.NewDesc("splitnic_iounit_registered_bytes_limit", "The most memory that may be registered (--max-memory); missing where there is no limit.", nil, nil)
	descPort       = prometheus.NewDesc("splitnic_iounit_host_frames_total", "Frames of a host's present session by what became of them; rx is from the LAN to the host.", []string{"peer", "direction", "outcome"}, nil)
	descPortBytes  = prometheus.NewDesc("splitnic_iounit_host_bytes_total", "Bytes of the Ethernet frames that were passed on.", []string{"peer", "direction"}, nil)
	descOversize   = prometheus.NewDesc("splitnic_iounit_host_oversize_frames_total", "Frames passed to the LAN in a host's present session that are longer than the card's MTU and one VLAN tag, which cards may drop.", []string{"peer"}, nil)
	descLimited    = prometheus.NewDesc("splitnic_iounit_host_limited_total", "Times that a channel of a host's present session had to wait because of its rate; rx is from the LAN to the host.", []string{"peer", "direction"}, nil)
	descRate       = prometheus.NewDesc("splitnic_iounit_host_rate_limit_bits_per_second", "The most that the policy lets a host send (tx) or receive; missing where there is no bound.", []string{"peer", "direction"}, nil)
	descPPS        = prometheus.NewDesc("splitnic_iounit_host_rate_limit_packets_per_second", "The most packets that the policy lets a host send (tx) or receive; missing where there is no bound.", []string{"peer", "direction"}, nil)
	descGroupPPS   = prometheus.NewDesc(
		"splitnic_iounit_host_group_rate_limit_packets_per_second",
		"The most packets that the policy lets a host send to groups of the LAN, all of them together; "+
			"missing where there is no bound.", []string{"peer"}, nil)
	descPortUp    = prometheus.NewDesc("splitnic_iounit_host_up", "1 while the host wants its port on the LAN up.", []string{"peer"}, nil)
	descPromisc   = prometheus.NewDesc("splitnic_iounit_host_promiscuous", "1 while the host gets frames that are not for it.", []string{"peer"}, nil)
	descAnnounced = prometheus.NewDesc("splitnic_iounit_host_announcements_total", "Frames that told the LAN where the host is, in its present session.", []string{"peer"}, nil)
	descGroups    = prometheus.NewDesc("splitnic_iounit_host_groups", "Groups that the host receives for; -1 for all.", []string{"peer"}, nil)
	descVLANs     = prometheus.NewDesc("splitnic_iounit_host_vlans", "VLANs that the host receives.", []string{"peer"}, nil)
)

// unitMetrics are those of the I/O unit as a whole.
func unitMetrics(emit emit, s *iounit.Status) {
	for _, rule := range iounit.Rules() { // those that nobody broke too
		emit(descViolations, prometheus.CounterValue, float64(s.Violations[rule]), rule)
	}
	for _, reason := range iounit.Refusals() {
		emit(descRefusals, prometheus.CounterValue, float64(s.Refusals[reason]), reason)
	}
	for _, reason := range iounit.Endings() {
		emit(descEnded, prometheus.CounterValue, float64(s.Ended[reason]), reason)
	}
	emit(descUnsealed, prometheus.CounterValue, float64(s.Unsealed))
	emit(descCame, prometheus.CounterValue, float64(s.Bootstrap.Connections))
	emit(descMeeting, prometheus.GaugeValue, float64(s.Bootstrap.Meeting))
	emit(descHandshakes, prometheus.CounterValue, float64(s.Bootstrap.Handshakes))
	emit(descDelayed, prometheus.CounterValue, float64(s.Bootstrap.Delayed))
	emit(descMemory, prometheus.GaugeValue, float64(s.Memory.Used))
	if s.Memory.Limit > 0 {
		emit(descMemoryMax, prometheus.GaugeValue, float64(s.Memory.Limit))
	}
}

// portMetrics are those of a host's port on the LAN.
func portMetrics(emit emit, peer string, h *iounit.HostStatus) {
	st := &h.Statistics
	for _, c := range []struct {
		direction, outcome string
		n                  uint64
	}{
		{"rx", "passed", st.RxFrames}, {"rx", "no_room", st.RxDropped}, {"rx", "too_long", st.RxTooLong},
		{"rx", "invalid", st.RxInvalid}, {"rx", "filtered", st.RxFiltered},
		{"tx", "passed", st.TxFrames}, {"tx", "dropped", st.TxDropped},
		{"tx", "source", st.TxSource}, {"tx", "vlan", st.TxVLAN},
		{"tx", "nested_tags", h.Dropped.NestedTags}, {"tx", "link_control", h.Dropped.LinkControl},
		{"tx", "ip_source", h.Dropped.IPSource}, {"tx", "tiny_segments", h.Dropped.TinySegments},
		{"tx", "group_rate", h.Dropped.GroupRate},
	} {
		emit(descPort, prometheus.CounterValue, float64(c.n), peer, c.direction, c.outcome)
	}
	emit(descPortBytes, prometheus.CounterValue, float64(st.RxBytes), peer, "rx")
	emit(descPortBytes, prometheus.CounterValue, float64(st.TxBytes), peer, "tx")
	for direction, rate := range map[string]int64{"rx": h.MaxRxRate, "tx": h.MaxTxRate} {
		if rate > 0 {
			emit(descRate, prometheus.GaugeValue, float64(rate), peer, direction)
		}
	}
	for direction, packets := range map[string]int64{"rx": h.MaxRxPPS, "tx": h.MaxTxPPS} {
		if packets > 0 {
			emit(descPPS, prometheus.GaugeValue, float64(packets), peer, direction)
		}
	}
	if h.MaxTxGroupPPS > 0 {
		emit(descGroupPPS, prometheus.GaugeValue, float64(h.MaxTxGroupPPS), peer)
	}
	emit(descLimited, prometheus.CounterValue, float64(h.RxLimited), peer, "rx")
	emit(descLimited, prometheus.CounterValue, float64(h.TxLimited), peer, "tx")
	emit(descOversize, prometheus.CounterValue, float64(h.TxOversize), peer)
	emit(descHeartbeats, prometheus.CounterValue, float64(h.Heartbeats), peer)
	gauge := func(d *prometheus.Desc, v float64) { emit(d, prometheus.GaugeValue, v, peer) }
	emit(descAnnounced, prometheus.CounterValue, float64(h.Announced), peer)
	flag := map[bool]float64{true: 1}
	gauge(descPortUp, flag[h.Up])
	gauge(descPromisc, flag[h.Filter.Promisc])
	groups := float64(len(h.Filter.Multicast))
	if h.Filter.AllMulti || h.Filter.Promisc {
		groups = -1
	}
	gauge(descGroups, groups)
	gauge(descVLANs, float64(h.VLANs.Len()))
}

// printTotals prints what is so of the I/O unit as a whole.
func printTotals(w io.Writer, s *iounit.Status) {
	limit := "no limit"
	if s.Memory.Limit > 0 {
		limit = fmt.Sprintf("of %.1f MiB", mebibytes(s.Memory.Limit))
	}
	fmt.Fprintf(w, "  memory\t%.1f MiB registered, %s\n", mebibytes(s.Memory.Used), limit)
	b := &s.Bootstrap
	fmt.Fprintf(w, "  connections\t%d, %d of them in their handshake; %d handshakes, %d delayed\n", b.Connections, b.Meeting, b.Handshakes, b.Delayed)
	printCounts(w, "refused", s.Refusals)
	printCounts(w, "protocol violations", s.Violations)
	printCounts(w, "sessions ended", s.Ended)
	if s.Unsealed > 0 {
		fmt.Fprintf(w, "  lost then\t%d frames in one-touch elements that were not sealed yet\n", s.Unsealed)
	}
}

// printCounts prints what was counted by names, if there is anything.
func printCounts(w io.Writer, what string, counts map[string]uint64) {
	if len(counts) == 0 {
		return
	}
	var list []string
	for name, n := range counts {
		list = append(list, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(list)
	fmt.Fprintf(w, "  %s\t%s\n", what, strings.Join(list, ", "))
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// printPort prints what a host has of the LAN.
func printPort(w io.Writer, indent string, h *iounit.HostStatus) {
	state := "up"
	if !h.Up {
		state = "down"
	}
	fmt.Fprintf(w, "%sport\t%s, mode %s, VLANs %s, receives %s\n", indent, state, h.Mode, h.VLANs, receives(h))
	if h.MaxTxRate+h.MaxRxRate+h.MaxTxPPS+h.MaxRxPPS > 0 || h.TxLimited+h.RxLimited > 0 { // there is a bound, or was
		fmt.Fprintf(w, "%srates\t%s to the LAN, limited %d times; %s from it, limited %d times\n",
			indent, rates(h.MaxTxRate, h.MaxTxPPS), h.TxLimited, rates(h.MaxRxRate, h.MaxRxPPS), h.RxLimited)
	}
	if h.MaxTxGroupPPS > 0 {
		fmt.Fprintf(w, "%sto groups\t%d packets/s to the LAN, more are dropped\n", indent, h.MaxTxGroupPPS)
	}
	fmt.Fprintf(w, "%searly discard\t%v\n", indent, h.EarlyDiscard)
	fmt.Fprintf(w, "%sannounced\tby %d frames to the LAN\n", indent, h.Announced)
	st := &h.Statistics
	fmt.Fprintf(w, "%sdropped on the way to the host\t%d no room, %d too long, %d invalid, %d filtered\n",
		indent, st.RxDropped, st.RxTooLong, st.RxInvalid, st.RxFiltered)
	fmt.Fprintf(w, "%sdropped on the way to the LAN\t%d source address, %d VLAN, %d otherwise\n",
		indent, st.TxSource, st.TxVLAN, st.TxDropped)
	if h.TxOversize > 0 {
		fmt.Fprintf(w, "%soversize on the LAN\t%d frames, longer than the card's MTU and one VLAN tag: raise the card's MTU\n", indent, h.TxOversize)
	}
	if d := &h.Dropped; *d != (iounit.Dropped{}) {
		fmt.Fprintf(w, "%s\t%d nested tags, %d link control, %d IP address, %d tiny segments, %d to groups\n",
			indent, d.NestedTags, d.LinkControl, d.IPSource, d.TinySegments, d.GroupRate)
	}
	for _, reason := range h.DropReasons {
		fmt.Fprintf(w, "%s  dropped for\t%s\n", indent, reason)
	}
}

// rates are the bounds of one direction.
func rates(bits, packets int64) string {
	if packets == 0 {
		return rate(bits)
	}
	return fmt.Sprintf("%s and %d packets/s", rate(bits), packets)
}

// rate is a bound in bits per second, of which a policy has 100,000 at least.
func rate(bits int64) string {
	n, unit := float64(bits)/1e3, "kbit"
	switch {
	case bits == 0:
		return "unlimited"
	case bits >= 1e9:
		n, unit = float64(bits)/1e9, "Gbit"
	case bits >= 1e6:
		n, unit = float64(bits)/1e6, "Mbit"
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + unit
}

// receives says in words what a host's filter lets through.
func receives(h *iounit.HostStatus) string {
	f := &h.Filter
	if f.Promisc {
		return "everything (promiscuous)"
	}
	words := h.MAC
	if n := len(f.Unicast); n > 0 {
		words += fmt.Sprintf(" and %d more addresses", n)
	}
	if f.AllMulti {
		return words + ", all groups"
	}
	return fmt.Sprintf("%s, %d groups", words, len(f.Multicast))
}

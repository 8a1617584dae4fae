package daemon

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/splitnic/splitnic/internal/counter"
	limits "github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
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

const (
	// seriesBurst is the number of names of a key that become labels at once, and seriesRate is
	// the number of further ones per second. Each new name is some sixty new time series.
	seriesBurst = 512
	seriesRate  = 1. / 60
	// seriesName is the largest length of a label.
	seriesName = 64
	// seriesRemembered is the number of labels from which on those of absent hosts are forgotten.
	seriesRemembered = 4096
)

// hostSeries chooses the label with the name of each host. Hosts choose their names, and a
// monitoring system keeps the series of each name for a long time. So the names of a key are
// limited: further ones are other-1, other-2 and so on, while the host has a session.
type hostSeries struct {
	names  *limits.Keyed
	labels map[peer]string // by name and key
}

func newHostSeries() *hostSeries {
	return &hostSeries{names: limits.NewKeyed(seriesRate), labels: make(map[peer]string)}
}

// of returns the labels of hosts, in their order. No two of them are equal.
func (s *hostSeries) of(hosts []iounit.HostStatus, now time.Time) []peer {
	used, present := make(map[peer]bool), make(map[peer]bool)
	for p, label := range s.labels { // also those of absent hosts, which may come again
		used[peer{name: label, key: p.key}] = true
	}
	labels := make([]peer, 0, len(hosts))
	for i := range hosts {
		p := peerOf(&hosts[i])
		present[p] = true
		label, known := s.labels[p]
		if !known {
			label = shortened(p.name)
			if used[peer{name: label, key: p.key}] || s.names.Take(now, keyOf(&hosts[i]), 1, seriesBurst) > 0 {
				label = other(p.key, used)
			}
			s.labels[p] = label
			used[peer{name: label, key: p.key}] = true
		}
		labels = append(labels, peer{name: label, key: p.key})
	}
	for p, label := range s.labels {
		if !present[p] && (label != shortened(p.name) || len(s.labels) > seriesRemembered) {
			delete(s.labels, p)
		}
	}
	return labels
}

// other returns a label for a host of a key that gets none with its name.
func other(key string, used map[peer]bool) string {
	for n := 1; ; n++ {
		if label := fmt.Sprint("other-", n); !used[peer{name: label, key: key}] {
			return label
		}
	}
}

// shortened returns a name, or the beginning of a long one with a part of its hash.
func shortened(name string) string {
	if len(name) <= seriesName {
		return name
	}
	sum := fmt.Sprintf("-%x", sha256.Sum256([]byte(name)))[:9]
	return name[:seriesName-len(sum)] + sum
}

// peerOf returns the name and the key of a host. Several keys can have the same name; name and
// key together are unique.
func peerOf(h *iounit.HostStatus) peer {
	p := peer{name: h.Name, key: h.Fingerprint}
	if h.Insecure {
		p.key = ""
	}
	return p
}

// keyOf returns the key of the limit of a host's names. Hosts without keys have one limit.
func keyOf(h *iounit.HostStatus) limits.Key {
	f, err := session.ParseFingerprint(h.Fingerprint)
	if err != nil || h.Insecure {
		return limits.Key{}
	}
	return limits.PublicKey(f)
}

package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// otherCounters is the family of the counters that have none of their own.
const otherCounters = "channel_events"

// families are the metrics of data channels that have several counters, or a name of
// their own, by their name in messaging.Counters. The label of what has parts is part.
var families = map[string]struct {
	part, help string
	direction  bool // labelled with it
}{
	"frames":         {help: "Frames moved in the present session; tx is towards the peer.", direction: true},
	"bytes":          {help: "Bytes of these frames, with the virtio_net_hdr.", direction: true},
	"dropped_frames": {part: "reason", help: "Frames dropped in the present session, by reason.", direction: true},
	"waits":          {part: "for", help: "Times a worker had to wait, by what for.", direction: true},
	"doorbells":      {help: "Batches posted to the data queue pair."},
	"windows": {part: "event", help: "Memory windows around what is lent to the peer that were bound, invalidated, " +
		"or invalidated_by_peer: as agreed with it."},
	otherCounters: {part: "event", help: "What else a data channel counts: the names are those of the status."},
}

// channelMetric is the metric that a counter of a data channel is a part of.
type channelMetric struct {
	desc            *prometheus.Desc
	part, direction string // values of these labels; "" where there is none
}

// labels are the values of a sample's labels.
func (m *channelMetric) labels(peer, queue string) []string {
	all := []string{peer, queue}
	for _, l := range []string{m.part, m.direction} {
		if l != "" {
			all = append(all, l)
		}
	}
	return all
}

// channelMetrics are those of messaging.Counters.
var channelMetrics = newChannelMetrics()

func newChannelMetrics() []channelMetric {
	descs := make(map[string]*prometheus.Desc)
	for family, f := range families {
		labels := []string{"peer", "queue"}
		if f.part != "" {
			labels = append(labels, f.part)
		}
		if f.direction {
			labels = append(labels, "direction")
		}
		descs[family] = desc(MetricName(family), f.help, labels...)
	}
	var all []channelMetric
	for _, c := range messaging.Counters() {
		family, part := FamilyOf(c)
		m := channelMetric{desc: descs[family], part: part}
		if families[family].direction {
			m.direction = c.Direction
		}
		all = append(all, m)
	}
	return all
}

// FamilyOf returns the metric that shows a counter, without its prefix and suffix,
// and what of that metric it is.
func FamilyOf(c messaging.Counter) (family, part string) {
	if c.Metric == "" {
		return otherCounters, c.Name
	}
	return c.Metric, c.Part
}

// MetricName is the full name of a family.
func MetricName(family string) string { return "splitnic_" + family + "_total" }

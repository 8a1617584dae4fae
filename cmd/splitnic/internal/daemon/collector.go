package daemon

import (
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/internal/printable"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// collector makes metrics of a status when metrics are requested.
type collector struct {
	collect func(emit)
}

// emit is the function to which a collector passes each sample.
type emit func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string)

func (e emit) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e(d, prometheus.GaugeValue, v, labels...)
}

func (e emit) count(d *prometheus.Desc, v uint64, labels ...string) {
	e(d, prometheus.CounterValue, float64(v), labels...)
}

// each emits the counts of all keys, which are the values of the last label. A key without a count
// has 0.
func (e emit) each(d *prometheus.Desc, keys []string, counts map[string]uint64) {
	for _, key := range keys {
		e.count(d, counts[key], key)
	}
}

// with returns a function that puts labels before those of each sample.
func (e emit) with(first ...string) emit {
	return func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		e(d, t, v, slices.Concat(first, labels)...)
	}
}

// Describe implements prometheus.Collector. The collector is an unchecked one, because the
// metrics depend on the sessions.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.collect(func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		for i := range labels {
			labels[i] = printable.Text(labels[i]) // a single label that is not UTF-8 fails all metrics
		}
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	})
}

// handler returns a handler that serves the samples of collect, and those of Prometheus'
// collectors for the process and for Go. Only one request at a time calls collect. Responses
// are sent without waiting for other scrapers.
func handler(collect func(emit)) http.Handler {
	return cardHandler(collect, func() map[string]func(emit) { return nil })
}

// cardHandler is handler for a process with cards. The samples of each card, which the functions
// that cards returns by name emit, have a label with its name.
func cardHandler(collect func(emit), cards func() map[string]func(emit)) http.Handler {
	var one sync.Mutex
	inTurn := func(collect func(emit)) prometheus.Collector {
		return collector{func(emit emit) {
			one.Lock()
			defer one.Unlock()
			collect(emit)
		}}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r := prometheus.NewRegistry()
		r.MustRegister(inTurn(collect), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
			collectors.NewGoCollector())
		for name, samples := range cards() {
			labels := prometheus.Labels{"card": printable.Text(name)}
			prometheus.WrapRegistererWith(labels, r).MustRegister(inTurn(samples))
		}
		promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, req)
	})
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// otherCounters is the family of the counters without their own family.
const otherCounters = "channel_events"

// families has the metrics that counters are parts of, by their names in the tables of counters.
// If a metric has several parts, part is the name of the label that distinguishes them.
var families = map[string]struct {
	part, help string
	direction  bool // has a label "direction"
}{
	// Of data channels: messaging.Counters.
	"frames":         {help: "Frames moved in the present session; tx is towards the peer.", direction: true},
	"bytes":          {help: "Bytes of these frames, with the virtio_net_hdr.", direction: true},
	"dropped_frames": {part: "reason", help: "Frames dropped in the present session, by reason.", direction: true},
	"waits":          {part: "for", help: "Times a worker had to wait, by what for.", direction: true},
	"doorbells":      {help: "Batches posted to the data queue pair."},
	"windows": {part: "event", help: "Memory windows around what is lent to the peer that were bound, invalidated, " +
		"or invalidated_by_peer: as agreed with it."},
	otherCounters: {part: "event", help: "What else a data channel counts: the names are those of the status."},
	// Of an I/O unit's hosts: iounit.HostCounters.
	"iounit_host_frames": {part: "outcome", help: "Frames of a host's present session by what became of them; rx is " +
		"from the LAN to the host.", direction: true},
	"iounit_host_bytes": {help: "Bytes of the Ethernet frames that were passed on.", direction: true},
	"iounit_host_announcements": {help: "Frames that told the LAN where the host is, in its present " +
		"session."},
	"iounit_host_limited": {help: "Times that a channel of a host's present session had to wait because of its rate; " +
		"rx is from the LAN to the host.", direction: true},
	"iounit_host_oversize_frames": {help: "Frames passed to the LAN in a host's present session that are longer than " +
		"the card's MTU and one VLAN tag, which cards may drop."},
	"iounit_host_heartbeats_throttled": {help: "Times that a host sent heartbeats so fast that they were left waiting, " +
		"in the present session."},
	// Of an I/O unit: iounit.DirectCounts.
	"iounit_direct_offers":         {help: "Direct connections that were offered to two hosts."},
	"iounit_direct_starts":         {help: "Direct connections that started."},
	"iounit_direct_kept":           {help: "Direct connections that another I/O unit had offered, and this one has permitted."},
	"iounit_direct_unanswered":     {help: "Hosts that did not say in time that a direct connection had ended."},
	"iounit_direct_stray_messages": {help: "Messages of hosts about direct connections that were over."},
}

// counterMetric is the metric that a counter is a part of.
type counterMetric struct {
	desc            *prometheus.Desc
	part, direction string // values of these labels; "" if the metric does not have the label
}

var (
	portCounterMetrics = counterMetrics(iounit.HostCounters(), "host", "key")
	directMetrics      = counterMetrics(iounit.DirectCounts())
)

// counterMetrics returns the metrics of counters. labels are the names of the labels that all
// of these metrics have.
func counterMetrics(counters []counter.Counter, labels ...string) []counterMetric {
	descs := make(map[string]*prometheus.Desc)
	all := make([]counterMetric, len(counters))
	for i, c := range counters {
		family, part := FamilyOf(c)
		f := families[family]
		if descs[family] == nil {
			labels := labels[:len(labels):len(labels)]
			if f.part != "" {
				labels = append(labels, f.part)
			}
			if f.direction {
				labels = append(labels, "direction")
			}
			descs[family] = desc(MetricName(family), f.help, labels...)
		}
		all[i] = counterMetric{desc: descs[family], part: part}
		if f.direction {
			all[i].direction = c.Direction
		}
	}
	return all
}

func emitCounters(emit emit, metrics []counterMetric, values []uint64) {
	for i, v := range values {
		var labels []string
		for _, l := range []string{metrics[i].part, metrics[i].direction} {
			if l != "" {
				labels = append(labels, l)
			}
		}
		emit.count(metrics[i].desc, v, labels...)
	}
}

// FamilyOf returns the name of the metric that shows a counter, without prefix and suffix, and
// which part of the metric the counter is.
func FamilyOf(c counter.Counter) (family, part string) {
	if c.Metric == "" {
		return otherCounters, c.Name
	}
	return c.Metric, c.Part
}

// MetricName returns the full name of a family.
func MetricName(family string) string { return "splitnic_" + family + "_total" }

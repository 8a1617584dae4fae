package daemon

import (
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/splitnic/splitnic/internal/printable"
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

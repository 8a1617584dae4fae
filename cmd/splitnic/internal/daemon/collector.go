package daemon

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// desc is what a metric is.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// collector turns a status into metrics when they are asked for.
type collector struct {
	collect func(emit)
}

// emit is how a collector hands over one sample.
type emit func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string)

// Describe implements prometheus.Collector: an unchecked one, because which
// metrics there are depends on the sessions.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.collect(func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	})
}

// handler answers with what collect emits, and with what Prometheus' collectors tell of
// the process and of Go. One request at a time has it collected; what is collected is
// sent without waiting for other scrapers.
func handler(collect func(emit)) http.Handler {
	r := prometheus.NewRegistry()
	var one sync.Mutex
	r.MustRegister(collector{func(emit emit) {
		one.Lock()
		defer one.Unlock()
		collect(emit)
	}}, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// flag is the value of what is either so or not.
func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

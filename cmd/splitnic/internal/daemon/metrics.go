package daemon

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

var (
	descElements = desc("splitnic_pool_elements", "Pool elements by state.", "peer", "queue", "state")
	descPinned   = desc("splitnic_registered_bytes", "Memory registered for the session.", "peer")
	descControl  = desc("splitnic_control_messages_total", "Messages on the control channel.", "peer", "direction")
	descPools    = desc("splitnic_pools", "Pools in use, by owner.", "peer", "queue", "owner")
	descRequests = desc("splitnic_pool_requests_total",
		"What became of pools beyond those at the beginning, in the present session.", "peer", "event")
	descRequestsThrottled = desc("splitnic_requests_throttled_total",
		"Requests of the peer's that came too fast and had to wait, in the present session.", "peer")
	descHandlers = desc("splitnic_handler_events_total",
		"What the workers of a completion-queue handler have done in the present session: completions, wakeups, and "+
			"budget_exhausted.", "peer", "handler", "event")
	descLatency = desc("splitnic_queue_latency",
		"1 for the queue of latency-sensitive frames, 0 for others.", "peer", "queue")
	descAssigned = desc("splitnic_queue_handler", "Completion-queue handler of a queue.", "peer", "queue")
	descProtect  = desc("splitnic_protection",
		"1 for the protection of the memory lent to the peer in the present session.", "peer", "protection")
	descSessions  = desc("splitnic_sessions_total", "Sessions established since the start.")
	descRefused   = desc("splitnic_refused_total", "Connections and hosts refused since the start.")
	descAttempts  = desc("splitnic_failed_attempts_total", "Sessions that ended or did not come about since the start.")
	descCarrier   = desc("splitnic_carrier", "1 while the netdevice has carrier.", "netdevice")
	descHostEnded = desc("splitnic_host_sessions_ended_total",
		"Sessions that ended because the I/O unit's key was trusted no longer, by reason.", "reason")
	descAdopted = desc("splitnic_netdevice_taken_over_total",
		"How many processes have taken the netdevice over from another since it was made.", "netdevice")
	descHosts = desc("splitnic_hosts", "Hosts connected.")
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

// handler answers with what collect emits. One request at a time has it collected;
// what is collected is sent without waiting for other scrapers.
func handler(collect func(emit)) http.Handler {
	r := prometheus.NewRegistry()
	var one sync.Mutex
	r.MustRegister(collector{func(emit emit) {
		one.Lock()
		defer one.Unlock()
		collect(emit)
	}})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

func hostMetrics(h *host.Host, r *reloader) http.Handler {
	return handler(func(emit emit) {
		s := h.Status()
		r.metrics(emit)
		for _, reason := range host.Endings() {
			emit(descHostEnded, prometheus.CounterValue, float64(s.Ended[reason]), reason)
		}
		carrier := 0.0
		if s.Netdevice.Carrier {
			carrier = 1
		}
		emit(descCarrier, prometheus.GaugeValue, carrier, s.Netdevice.Name)
		emit(descAdopted, prometheus.CounterValue, float64(s.Netdevice.Adopted), s.Netdevice.Name)
		emit(descSessions, prometheus.CounterValue, float64(s.Sessions))
		emit(descAttempts, prometheus.CounterValue, float64(s.Attempts))
		failoverMetrics(emit, &s.Failovers)
		hostDirectMetrics(emit, &s.Direct)
		if s.Traffic != nil {
			trafficMetrics(emit, s.IOUnit.Name, s.Traffic)
		}
	})
}

func iounitMetrics(u *iounit.Unit, r *reloader) http.Handler {
	return handler(func(emit emit) {
		s := u.Status()
		r.metrics(emit)
		emit(descHosts, prometheus.GaugeValue, float64(len(s.Hosts)))
		emit(descSessions, prometheus.CounterValue, float64(s.Sessions))
		emit(descRefused, prometheus.CounterValue, float64(s.Refused))
		unitMetrics(emit, &s)
		for i := range s.Hosts {
			h := &s.Hosts[i]
			// Names are not unique among keys; the key's fingerprint is.
			peer := h.Name
			if !h.Insecure {
				peer += " " + h.Fingerprint
			}
			portMetrics(emit, peer, h)
			if h.Traffic != nil {
				trafficMetrics(emit, peer, h.Traffic)
			}
		}
	})
}

func trafficMetrics(emit emit, peer string, s *messaging.Stats) {
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		emit(d, prometheus.CounterValue, float64(v), labels...)
	}
	emit(descProtect, prometheus.GaugeValue, 1, peer, string(s.Protection.Name))
	emit(descPinned, prometheus.GaugeValue, float64(s.MemoryPinned), peer)
	count(descControl, s.ControlSent, peer, "tx")
	count(descControl, s.ControlReceived, peer, "rx")
	for event, n := range map[string]uint64{
		"asked": s.PoolsAsked, "given_back": s.PoolsGiven, "lent": s.PoolsGranted,
		"refused": s.PoolsRefused, "taken_back": s.PoolsReturned,
	} {
		count(descRequests, n, peer, event)
	}
	count(descRequestsThrottled, s.RequestsThrottled, peer)
	for _, h := range s.Handlers {
		n := strconv.Itoa(h.Number)
		count(descHandlers, h.Completions, peer, n, "completions")
		count(descHandlers, h.Wakeups, peer, n, "wakeups")
		count(descHandlers, h.BudgetExhausted, peer, n, "budget_exhausted")
	}
	for i, c := range s.Channels {
		q := strconv.Itoa(i + 1)
		emit(descAssigned, prometheus.GaugeValue, float64(c.Handler), peer, q)
		emit(descLatency, prometheus.GaugeValue, map[bool]float64{true: 1}[c.Latency], peer, q)
		emitCounters(emit, channelMetrics, c.Counts(), peer, q)
		emit(descPools, prometheus.GaugeValue, float64(len(c.RemotePools)), peer, q, "remote")
		emit(descPools, prometheus.GaugeValue, float64(len(c.LocalPools)), peer, q, "local")
		for state, n := range map[string]int{
			"available": c.Remote.Available, "out": c.Remote.Out,
			"lent": c.Local.Lent, "consumed": c.Local.Consumed, "returning": c.Local.Returning,
		} {
			emit(descElements, prometheus.GaugeValue, float64(n), peer, q, state)
		}
	}
}

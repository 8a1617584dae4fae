package daemon

import (
	"cmp"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// peer has the values of the labels that identify the peer of a session.
type peer struct {
	name, key string // fingerprint of its key; empty if peers are not authenticated
}

// traffic has the metrics of a session. The first label is the peer's role and has its name as
// value. The second one is the peer's key.
type traffic struct {
	elements, pinned, control, pools, requests, throttled, handlers *prometheus.Desc
	latency, assigned, protection, encrypted                        *prometheus.Desc

	channel []counterMetric
}

// The metrics of a host's sessions, whose peer is an I/O unit, and of an I/O unit's sessions.
var (
	hostTraffic = newTraffic("iounit")
	unitTraffic = newTraffic("host")
)

func newTraffic(role string) *traffic {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return desc(name, help, append([]string{role, "key"}, labels...)...)
	}
	return &traffic{
		elements: desc("splitnic_pool_elements", "Pool elements by state.", "queue", "state"),
		pinned:   desc("splitnic_registered_bytes", "Memory registered for the session."),
		control:  desc("splitnic_control_messages_total", "Messages on the control channel.", "direction"),
		pools:    desc("splitnic_pools", "Pools in use, by owner.", "queue", "owner"),
		requests: desc("splitnic_pool_requests_total",
			"What became of pools beyond those at the beginning, in the present session.", "event"),
		throttled: desc("splitnic_requests_throttled_total",
			"Requests of the peer's that came too fast and had to wait, in the present session."),
		handlers: desc("splitnic_handler_events_total",
			"What the workers of a completion-queue handler have done in the present session: completions, wakeups, and "+
				"budget_exhausted.", "handler", "event"),
		latency:  desc("splitnic_queue_latency", "1 for the queue of latency-sensitive frames, 0 for others.", "queue"),
		assigned: desc("splitnic_queue_handler", "Completion-queue handler of a queue.", "queue"),
		protection: desc("splitnic_protection",
			"1 for the protection of the memory lent to the peer in the present session.", "protection"),
		encrypted: desc("splitnic_encrypted",
			"1 for the cipher of the present session's frames and messages; none if they are not encrypted.", "cipher"),
		channel: counterMetrics(messaging.Counters(), role, "key", "queue"),
	}
}

func (t *traffic) emit(emit emit, p peer, s *messaging.Stats) {
	emit = emit.with(p.name, p.key)
	emit.gauge(t.protection, 1, string(s.Protection.Name))
	emit.gauge(t.encrypted, 1, string(cmp.Or(s.Cipher, "none")))
	emit.gauge(t.pinned, float64(s.MemoryPinned))
	emit.count(t.control, s.ControlSent, "tx")
	emit.count(t.control, s.ControlReceived, "rx")
	for event, n := range map[string]uint64{
		"asked": s.PoolsAsked, "given_back": s.PoolsGiven, "lent": s.PoolsGranted,
		"refused": s.PoolsRefused, "taken_back": s.PoolsReturned,
	} {
		emit.count(t.requests, n, event)
	}
	emit.count(t.throttled, s.RequestsThrottled)
	for _, h := range s.Handlers {
		n := strconv.Itoa(h.Number)
		emit.count(t.handlers, h.Completions, n, "completions")
		emit.count(t.handlers, h.Wakeups, n, "wakeups")
		emit.count(t.handlers, h.BudgetExhausted, n, "budget_exhausted")
	}
	for i, c := range s.Channels {
		q := strconv.Itoa(i + 1)
		emit.gauge(t.assigned, float64(c.Handler), q)
		emit.gauge(t.latency, flag(c.Latency), q)
		emitCounters(emit.with(q), t.channel, c.Counts())
		emit.gauge(t.pools, float64(len(c.RemotePools)), q, "remote")
		emit.gauge(t.pools, float64(len(c.LocalPools)), q, "local")
		for state, n := range map[string]int{
			"available": c.Remote.Available, "out": c.Remote.Out,
			"lent": c.Local.Lent, "consumed": c.Local.Consumed, "returning": c.Local.Returning,
		} {
			emit.gauge(t.elements, float64(n), q, state)
		}
	}
}

package bench

import (
	"math"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// Result is the result of one measurement. Rates are rates of delivered messages, including their
// virtio_net_hdr; if both ends have sent, they are sums of both directions. Result has a field for
// each field of the JSON.
type Result struct {
	Name          Kind                 `json:"name"`
	Form          string               `json:"form"` // "local": both ends in one process; or "two-node"
	Mode          protocol.Mode        `json:"mode"`
	Size          int                  `json:"size"` // bytes
	Queues        int                  `json:"queues"`
	Bidirectional bool                 `json:"bidirectional"`
	PostList      int                  `json:"post_list"` // 0: the layer's default
	TxDepth       int                  `json:"tx_depth"`  // 0: the layer's default
	Poll          bool                 `json:"poll"`
	NoPack        bool                 `json:"no_pack"`
	Protection    messaging.Protection `json:"protection"` // in force at this end
	Cipher        seal.Cipher          `json:"cipher"`     // empty: frames are not encrypted
	// Bound is true if both ends have proved that the queue pairs belong to the authenticated
	// connection. Within one process there is no such connection.
	Bound  bool   `json:"bound"`
	WarmUp uint64 `json:"warm_up"`
	Device string `json:"device"`
	MTU    int    `json:"mtu"` // bytes of payload of a packet of the fabric

	Iterations uint64  `json:"iterations"` // messages delivered, or round trips
	Lost       uint64  `json:"lost"`       // in mode send-uc
	Seconds    float64 `json:"seconds"`    // of the longer direction

	MiBPerSecond     float64 `json:"mib_per_second"`
	PeakMiBPerSecond float64 `json:"peak_mib_per_second"`
	Mpps             float64 `json:"mpps"` // million messages per second
	// Of the messages that this end has sent.
	TransfersPerSecond float64 `json:"transfers_per_second"`
	PostsPerSecond     float64 `json:"posts_per_second"`

	Latency *Latency `json:"latency,omitempty"`

	// Of this process, and of the other end's process if there is one. A GB is 10⁹ bytes.
	CPUSecondsPerGB      float64 `json:"cpu_seconds_per_gb"`
	PeerCPUSecondsPerGB  float64 `json:"peer_cpu_seconds_per_gb"`
	AllocationsPerMsg    float64 `json:"allocations_per_message"`
	PeerAllocationPerMsg float64 `json:"peer_allocations_per_message"`
}

// Latency has the times of half a round trip, in microseconds.
type Latency struct {
	Min     float64 `json:"min"`
	Typical float64 `json:"typical"` // the median
	Average float64 `json:"average"`
	Stdev   float64 `json:"stdev"`
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
	P99     float64 `json:"p99"`
	P999    float64 `json:"p999"`
	Max     float64 `json:"max"`
}

// The forms of a measurement.
const (
	formLocal   = "local"
	formTwoNode = "two-node"
)

// result returns the result at the initiator, after wait.
func (e *end) result(form string, device string) Result {
	s, stats := &e.spec, e.conn.Stats()
	r := Result{
		Name: s.Kind, Form: form, Mode: s.Mode, Size: s.Size, Queues: s.Queues, Bidirectional: s.Bidirectional,
		PostList: s.PostList, TxDepth: s.TxDepth, Poll: s.Poll, NoPack: s.NoPack, Protection: stats.Protection.Name,
		Cipher: stats.Cipher,
		Bound:  stats.Bound, WarmUp: s.WarmUp,
		Device: device, MTU: e.conn.Addresses()[0].MTU,
	}
	if e.pinger != nil {
		e.latency(&r)
	} else {
		e.throughput(&r)
	}
	return r
}

func (e *end) latency(r *Result) {
	p := e.pinger
	// A round trip is two messages.
	micro := func(ns float64) float64 { return ns / 2 / 1e3 }
	at := func(q float64) float64 { return micro(float64(p.times.ValueAtQuantile(q))) }
	r.Iterations, r.Lost = p.rounds-p.lost, p.lost
	r.Seconds = time.Duration(p.end - p.begin).Seconds()
	r.Latency = &Latency{
		Min: micro(float64(p.times.Min())), Typical: at(50), Average: micro(p.times.Mean()), Stdev: micro(p.times.StdDev()),
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: micro(float64(p.times.Max())),
	}
	r.rate(float64(p.rounds)/r.Seconds, float64(p.rounds)/r.Seconds)
	r.cost(p.after.since(p.before), p.rounds)
	e.transfers(r, float64(p.rounds)/r.Seconds)
}

func (e *end) throughput(r *Result) {
	mine := use().since(e.tx.before)
	to := e.tx.report
	var sent uint64
	for _, p := range e.ports {
		sent += p.(*flood).sent.Load()
	}
	r.Iterations, r.Lost = to.Messages, sent-min(sent, to.Messages)
	r.Seconds = to.Time.Seconds()
	rate, peak := rateOf(to), to.PeakRate
	e.transfers(r, rate)
	if e.rx != nil {
		from := e.rx.report
		r.Iterations += from.Messages
		r.Seconds = max(r.Seconds, from.Time.Seconds())
		rate, peak = rate+rateOf(from), peak+from.PeakRate
	}
	r.rate(rate, peak)
	r.cost(mine, r.Iterations)
	if r.Form != formLocal {
		r.PeerCPUSecondsPerGB = r.perGB(to.CPU, r.Iterations)
		r.PeerAllocationPerMsg = float64(to.Allocations) / float64(max(r.Iterations, 1))
	}
}

// rateOf returns the rate in messages per second.
func rateOf(r report) float64 {
	if r.Time <= 0 {
		return 0
	}
	return float64(r.Messages) / r.Time.Seconds()
}

// rate sets the average and the peak rate, both in messages per second.
func (r *Result) rate(average, peak float64) {
	r.Mpps = average / 1e6
	r.MiBPerSecond = average * float64(r.Size) / (1 << 20)
	r.PeakMiBPerSecond = math.Max(average, peak) * float64(r.Size) / (1 << 20)
}

// cost sets what this process has used for messages.
func (r *Result) cost(u usage, messages uint64) {
	r.CPUSecondsPerGB = r.perGB(u.cpu, messages)
	r.AllocationsPerMsg = float64(u.allocs) / float64(max(messages, 1))
}

func (r *Result) perGB(cpu time.Duration, messages uint64) float64 {
	return cpu.Seconds() / (float64(max(messages, 1)) * float64(r.Size) / 1e9)
}

// transfers sets the rates of transfers and posts for that rate of messages, from the averages of the
// session.
func (e *end) transfers(r *Result, rate float64) {
	var frames, transfers, posts uint64
	for _, c := range e.conn.Stats().Channels {
		frames += c.TxFrames
		transfers += c.TxFrames - c.TxPacked + c.TxPacks
		posts += c.TxPosts
	}
	if frames > 0 {
		r.TransfersPerSecond = rate * float64(transfers) / float64(frames)
		r.PostsPerSecond = rate * float64(posts) / float64(frames)
	}
}

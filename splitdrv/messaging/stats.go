package messaging

import (
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// ChannelStats has the state and the counters of one data channel, as seen from this side.
// The counters never decrease during the life of the Conn.
type ChannelStats struct {
	core.TxCounters[uint64]
	core.RxCounters[uint64]

	Local        Ledger `json:"local"`         // elements of all local pools
	Remote       Ledger `json:"remote"`        // elements of all remote pools
	LocalPools   []Pool `json:"local_pools"`   // each local pool
	RemotePools  []Pool `json:"remote_pools"`  // each remote pool
	MemoryPinned int    `json:"memory_pinned"` // bytes registered for this channel: send slots and pools
	Handler      int    `json:"handler"`       // completion-queue handler of the channel
	// CompVector is the completion vector of the channel's completion queues, which is
	// that of the handler that the channel was first assigned to.
	CompVector int    `json:"comp_vector"`
	Moderated  bool   `json:"moderated"` // the completion queues are moderated
	QPN        uint32 `json:"qpn"`       // number of the data queue pair
	PeerQPN    uint32 `json:"peer_qpn"`  // number of the peer's queue pair
	Latency    bool   `json:"latency"`   // this is the latency channel
	Inline     int    `json:"inline"`    // bytes up to which transfers are posted inline, as the device grants
	// RevocationMax is the longest of the counted revocations.
	RevocationMax time.Duration `json:"revocation_max_ns,omitempty"`
}

// Pool is a local or remote pool.
type Pool struct {
	Ref         uint32 `json:"ref"`
	ElementSize int    `json:"element_size"` // bytes
	Extra       bool   `json:"extra"`        // lent on request
	Ledger
}

// Ledger is bufpool.Ledger.
type Ledger = bufpool.Ledger

// Stats is a snapshot of a Conn's state and counters.
type Stats struct {
	// Bound is true if, with Config.Bind, both sides have proved that they are the sides of
	// the authenticated connection.
	Bound             bool              `json:"bound"`
	Mode              protocol.Mode     `json:"mode"`
	Protection        ProtectionInForce `json:"protection"`  // of the local pools
	Cipher            seal.Cipher       `json:"cipher"`      // of all frames and messages; empty: they are not encrypted
	PathMTU           int               `json:"path_mtu"`    // bytes; 0: not connected yet
	PathProved        bool              `json:"path_proved"` // packets of that length have got through, in both directions
	Channels          []ChannelStats    `json:"channels"`
	ControlSent       uint64            `json:"control_sent"`
	ControlReceived   uint64            `json:"control_received"`
	MemoryPinned      int               `json:"memory_pinned"` // total bytes registered
	CompVectors       int               `json:"comp_vectors"`  // number of the device's completion vectors
	Handlers          []cq.HandlerStats `json:"handlers"`
	PoolsAsked        uint64            `json:"pools_asked"`        // BufferRecvPoolGets sent
	PoolsGranted      uint64            `json:"pools_granted"`      // pools lent on the peer's request
	PoolsRefused      uint64            `json:"pools_refused"`      // requests of the peer that were not granted
	PoolsReturned     uint64            `json:"pools_returned"`     // local pools that were flushed and deregistered
	PoolsGiven        uint64            `json:"pools_given"`        // remote pools that were given back
	RequestsThrottled uint64            `json:"requests_throttled"` // requests of the peer delayed by a rate limit
	FlushesThrottled  uint64            `json:"flushes_throttled"`  // flushes of the peer delayed by a rate limit
}

// Stats reads the counters. It may be called at any time before Close.
func (c *Conn) Stats() Stats {
	pools := c.pools.Count()
	var cipher seal.Cipher
	if c.cfg.Keys != nil {
		cipher = c.cfg.Keys.Cipher()
	}
	s := Stats{
		Mode:       c.cfg.Mode,
		Protection: c.protection,
		Cipher:     cipher,
		Bound:      c.proofs.begun.Load(),
		PathMTU:    int(c.shared.PathMTU.Load()), PathProved: c.cfg.ProvePath && c.proofs.begun.Load(),
		ControlSent: c.control.Sent.Load(), ControlReceived: c.control.Received.Load(),
		MemoryPinned: c.shared.Memory.Pinned(),
		PoolsAsked:   pools.Asked, PoolsGiven: pools.Given,
		PoolsGranted: pools.Granted, PoolsRefused: pools.Refused, PoolsReturned: pools.Returned,
		RequestsThrottled: c.requests.Held.Load(), FlushesThrottled: c.pools.Held.Load(),
	}
	s.CompVectors, s.Handlers = c.shared.Handlers.Vectors, c.shared.Handlers.Stats()
	for _, ch := range c.channels {
		s.Channels = append(s.Channels, ch.stats())
	}
	for _, h := range s.Handlers {
		for _, ch := range h.Channels {
			if ch > 0 {
				s.Channels[len(s.Channels)-1].Handler = cq.Unassigned
				s.Channels[ch-1].Handler = h.Number
			}
		}
	}
	return s
}

func (ch *channel) stats() ChannelStats {
	s := ChannelStats{
		MemoryPinned: ch.shared.Sender.Slots.Pinned(), CompVector: ch.Vector, Moderated: ch.Moderated,
		QPN: ch.QP.Num(), PeerQPN: ch.PeerQPN, Latency: ch.Latency, Inline: ch.QP.MaxInline(),
		LocalPools: []Pool{}, RemotePools: []Pool{},
	}
	counter.Snapshot(&s.TxCounters, &ch.shared.Sender.Count)
	counter.Snapshot(&s.RxCounters, &ch.shared.Receiver.Count)
	s.RevocationMax = ch.rx.LongestRevocation()
	for _, p := range ch.rx.Pools() {
		l := p.Elements.Ledger()
		s.Local = addLedger(s.Local, l)
		s.LocalPools = append(s.LocalPools,
			Pool{Ref: p.Ref, ElementSize: p.Elements.ElementSize(), Extra: p.Extra, Ledger: l})
		s.MemoryPinned += len(p.Arena.Bytes())
	}
	for _, g := range ch.shared.Sender.Pools() {
		l := g.Ledger()
		s.Remote = addLedger(s.Remote, l)
		s.RemotePools = append(s.RemotePools, Pool{Ref: g.Ref, ElementSize: g.ElementSize(), Extra: g.Extra(), Ledger: l})
	}
	return s
}

func addLedger(a, b Ledger) Ledger {
	return Ledger{
		Elements:  a.Elements + b.Elements,
		Available: a.Available + b.Available, Out: a.Out + b.Out,
		Lent: a.Lent + b.Lent, Consumed: a.Consumed + b.Consumed, Returning: a.Returning + b.Returning,
	}
}

// Counts returns the values of the counters, in the order of Counters.
func (s *ChannelStats) Counts() []uint64 {
	return counter.Values(counter.Values(nil, &s.TxCounters), &s.RxCounters)
}

// Counters has all counters of a data channel, in the order of ChannelStats.Counts.
func Counters() []counter.Counter {
	return append(counter.Of[TxCounters[uint64]]("tx"), counter.Of[RxCounters[uint64]]("rx")...)
}

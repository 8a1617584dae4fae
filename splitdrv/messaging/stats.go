package messaging

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// ChannelStats are the counters of one data channel, from this side's point of
// view: tx is from the port to the peer. They only grow while the Conn lives.
type ChannelStats struct {
	TxFrames      uint64 `json:"tx_frames"`
	TxBytes       uint64 `json:"tx_bytes"`     // with the virtio_net_hdr
	TxTooLong     uint64 `json:"tx_too_long"`  // dropped: fits no pool, or not the slot
	TxInvalid     uint64 `json:"tx_invalid"`   // dropped: the port could not describe it
	TxMalformed   uint64 `json:"tx_malformed"` // dropped: no peer would take it, see vnet.Check
	TxPadded      uint64 `json:"tx_padded"`    // ended within their VLAN tags
	TxPosts       uint64 `json:"tx_posts"`     // doorbells
	TxNoCredit    uint64 `json:"tx_no_credit"`
	TxNoSlot      uint64 `json:"tx_no_slot"`
	TxIndicated   uint64 `json:"tx_indicated"`   // transfers indicated on the control channel
	IndicatesSent uint64 `json:"indicates_sent"` // BufferRDMAIndicate messages
	RxFrames      uint64 `json:"rx_frames"`
	RxBytes       uint64 `json:"rx_bytes"`
	RxDropped     uint64 `json:"rx_dropped"`    // the port refused the frame
	RxOverMTU     uint64 `json:"rx_over_mtu"`   // dropped: larger than this side's MTU allows
	RxMalformed   uint64 `json:"rx_malformed"`  // dropped: no netdevice would take it, see vnet.Check
	RxUnsealed    uint64 `json:"rx_unsealed"`   // dropped: the session ended before their one-touch windows were invalid
	RxPortBusy    uint64 `json:"rx_port_busy"`  // waits for a port that was full
	TxHeld        uint64 `json:"tx_held"`       // times that the port let no more through for a while: see PacedPort
	RxHeld        uint64 `json:"rx_held"`       // the same
	RxWakeups     uint64 `json:"rx_wakeups"`    // sleeps ended by an event
	RxIndicated   uint64 `json:"rx_indicated"`  // transfers indicated on the control channel
	RxLost        uint64 `json:"rx_lost"`       // mode send-uc: messages that did not come
	RxLate        uint64 `json:"rx_late"`       // mode send-uc: dropped, came after they were taken for lost
	UpdatesSent   uint64 `json:"updates_sent"`  // BufferRecvPoolUpdate messages
	Lent          Ledger `json:"lent"`          // what the peer may write, all pools of the channel
	Granted       Ledger `json:"granted"`       // what we may write
	LentPools     []Pool `json:"lent_pools"`    // one by one
	GrantedPools  []Pool `json:"granted_pools"` // one by one
	MemoryPinned  int    `json:"memory_pinned"` // bytes registered for this channel: send slots and pools
	Handler       int    `json:"handler"`       // completion-queue handler of the channel
	CompVector    int    `json:"comp_vector"`   // completion vector of the channel's CQs: of the handler that it began with
	Moderated     bool   `json:"moderated"`     // these hold back events, as configured
	QPN           uint32 `json:"qpn"`           // of the data queue pair
	PeerQPN       uint32 `json:"peer_qpn"`      // the one that it is connected to
	Latency       bool   `json:"latency"`       // it is the latency channel
	Solicited     uint64 `json:"tx_solicited"`  // transfers that asked for the peer's attention
	TxSignaled    uint64 `json:"tx_signaled"`   // transfers that asked for a completion
	TxInline      uint64 `json:"tx_inline"`     // transfers that carried their data inline
	TxPacks       uint64 `json:"tx_packs"`      // transfers that carried several frames
	TxPacked      uint64 `json:"tx_packed"`     // frames in these
	RxPacks       uint64 `json:"rx_packs"`
	RxPacked      uint64 `json:"rx_packed"`

	// Windows of the pools that are lent: bound, invalidated by this side, and
	// invalidated by the peer because it was asked to.
	WindowsBound       uint64 `json:"windows_bound"`
	WindowsInvalidated uint64 `json:"windows_invalidated"`
	WindowsGivenUp     uint64 `json:"windows_given_up"`
}

// Pool is one pool, of either side's.
type Pool struct {
	Ref         uint32 `json:"ref"`
	ElementSize int    `json:"element_size"` // bytes
	Extra       bool   `json:"extra"`        // lent on request
	Ledger
}

// Ledger is bufpool's.
type Ledger = bufpool.Ledger

// Stats is a snapshot of a Conn.
type Stats struct {
	// Bound is true when both sides have proved, with Config.Bind, that they are
	// those of the authenticated connection.
	Bound           bool           `json:"bound"`
	Mode            protocol.Mode  `json:"mode"`
	Protection      Protecting     `json:"protection"` // of the pools that are lent
	Channels        []ChannelStats `json:"channels"`
	ControlSent     uint64         `json:"control_sent"`
	ControlReceived uint64         `json:"control_received"`
	MemoryPinned    int            `json:"memory_pinned"` // bytes registered in all
	CompVectors     int            `json:"comp_vectors"`  // that the device has
	Handlers        []HandlerStats `json:"handlers"`
	PoolsAsked      uint64         `json:"pools_asked"`    // BufferRecvPoolGets sent
	PoolsGranted    uint64         `json:"pools_granted"`  // pools lent on the peer's request
	PoolsRefused    uint64         `json:"pools_refused"`  // requests of the peer's that were not granted
	PoolsReturned   uint64         `json:"pools_returned"` // pools of ours that came back, and were deregistered
	PoolsGiven      uint64         `json:"pools_given"`    // pools of the peer's that we gave back
	RequestsHeld    uint64         `json:"requests_held"`  // requests of the peer's that came too fast, and had to wait
	FlushesHeld     uint64         `json:"flushes_held"`   // pools of the peer's taken back too fast: answers that it had to wait for
}

type txCounters struct {
	frames, bytes, tooLong, invalid, malformed, padded, posts, noCredit, noSlot, solicited, signaled, inline, indicates, indicated, packs, packed, bound, invalidated, held atomic.Uint64
}

type rxCounters struct {
	frames, bytes, dropped, overMTU, malformed, portBusy, wakeups, updates, indicated, lost, late, packs, packed, invalidated, held, unsealed atomic.Uint64
}

// Stats reads the counters. It may be called at any time before Close.
func (c *Conn) Stats() Stats {
	pools := c.pools.count()
	s := Stats{
		Mode:        c.cfg.Mode,
		Protection:  c.protecting,
		Bound:       c.binding.bound.Load(),
		ControlSent: c.control.sent.Load(), ControlReceived: c.control.received.Load(),
		MemoryPinned: c.memory.pinned(),
		PoolsAsked:   pools.Asked, PoolsGiven: pools.Given,
		PoolsGranted: pools.Granted, PoolsRefused: pools.Refused, PoolsReturned: pools.Returned,
		RequestsHeld: c.requests.held.Load(), FlushesHeld: c.pools.held.Load(),
	}
	s.CompVectors, s.Handlers = c.handlers.vectors, c.handlers.stats()
	for _, ch := range c.channels {
		s.Channels = append(s.Channels, ch.stats())
	}
	for _, h := range s.Handlers {
		for _, ch := range h.Channels {
			if ch > 0 {
				s.Channels[ch-1].Handler = h.Number
			}
		}
	}
	return s
}

func (ch *channel) stats() ChannelStats {
	t, r := &ch.tx.count, &ch.rx.count
	s := ChannelStats{
		TxFrames: t.frames.Load(), TxBytes: t.bytes.Load(), TxTooLong: t.tooLong.Load(), TxInvalid: t.invalid.Load(),
		TxMalformed: t.malformed.Load(), TxPadded: t.padded.Load(), RxMalformed: r.malformed.Load(),
		TxPosts: t.posts.Load(), TxNoCredit: t.noCredit.Load(), TxNoSlot: t.noSlot.Load(),
		TxIndicated: t.indicated.Load(), IndicatesSent: t.indicates.Load(),
		Solicited: t.solicited.Load(), TxSignaled: t.signaled.Load(), TxInline: t.inline.Load(),
		TxPacks: t.packs.Load(), TxPacked: t.packed.Load(), RxPacks: r.packs.Load(), RxPacked: r.packed.Load(),
		RxFrames: r.frames.Load(), RxBytes: r.bytes.Load(), RxDropped: r.dropped.Load(),
		RxOverMTU: r.overMTU.Load(), RxUnsealed: r.unsealed.Load(), RxPortBusy: r.portBusy.Load(), RxWakeups: r.wakeups.Load(),
		RxIndicated: r.indicated.Load(), RxLost: r.lost.Load(), RxLate: r.late.Load(),
		TxHeld: t.held.Load(), RxHeld: r.held.Load(),
		UpdatesSent:  r.updates.Load(),
		WindowsBound: t.bound.Load(), WindowsInvalidated: t.invalidated.Load(), WindowsGivenUp: r.invalidated.Load(),
		MemoryPinned: ch.tx.in.slots.Len() * ch.slotSize, CompVector: ch.vector,
		Moderated: ch.moderated,
		QPN:       ch.qp.Num(), PeerQPN: ch.peerQPN, Latency: ch.latency,
	}
	for _, p := range *ch.rx.lent.Load() {
		l := p.Loan.Ledger()
		s.Lent = addLedger(s.Lent, l)
		s.LentPools = append(s.LentPools, Pool{Ref: p.Ref, ElementSize: p.Loan.ElementSize(), Extra: p.Extra, Ledger: l})
		s.MemoryPinned += len(p.Arena.Bytes())
	}
	for _, g := range *ch.tx.grants.Load() {
		l := g.Ledger()
		s.Granted = addLedger(s.Granted, l)
		s.GrantedPools = append(s.GrantedPools, Pool{Ref: g.Ref, ElementSize: g.ElementSize(), Extra: g.Extra(), Ledger: l})
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

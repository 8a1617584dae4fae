package messaging

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
)

// ChannelStats are the counters of one data channel, from this side's point of
// view: tx is from the port to the peer. They only grow while the Conn lives.
type ChannelStats struct {
	TxFrames     uint64 `json:"tx_frames"`
	TxBytes      uint64 `json:"tx_bytes"`    // with the virtio_net_hdr
	TxTooLong    uint64 `json:"tx_too_long"` // dropped: fits no pool, or not the slot
	TxInvalid    uint64 `json:"tx_invalid"`  // dropped: the port could not describe it
	TxPosts      uint64 `json:"tx_posts"`    // doorbells
	TxNoCredit   uint64 `json:"tx_no_credit"`
	TxNoSlot     uint64 `json:"tx_no_slot"`
	RxFrames     uint64 `json:"rx_frames"`
	RxBytes      uint64 `json:"rx_bytes"`
	RxDropped    uint64 `json:"rx_dropped"`    // the port refused the frame
	RxOverMTU    uint64 `json:"rx_over_mtu"`   // dropped: larger than this side's MTU allows
	RxPortBusy   uint64 `json:"rx_port_busy"`  // waits for a port that was full
	RxWakeups    uint64 `json:"rx_wakeups"`    // sleeps ended by an event
	UpdatesSent  uint64 `json:"updates_sent"`  // BufferRecvPoolUpdate messages
	Lent         Ledger `json:"lent"`          // what the peer may write, all pools of the channel
	Granted      Ledger `json:"granted"`       // what we may write
	MemoryPinned int    `json:"memory_pinned"` // bytes registered for this channel
	CompVector   int    `json:"comp_vector"`   // completion vector of the channel's CQs
	QPN          uint32 `json:"qpn"`           // of the data queue pair
	PeerQPN      uint32 `json:"peer_qpn"`      // the one that it is connected to
	Solicited    uint64 `json:"tx_solicited"`  // writes that asked for the peer's attention
	TxSignaled   uint64 `json:"tx_signaled"`   // writes that asked for a completion
	TxInline     uint64 `json:"tx_inline"`     // writes that carried their data inline
}

// Protection says what bounds a peer to the memory that it was lent.
const Protection = "a protection domain per peer and a memory region per pool, remote write only"

// Ledger is bufpool's.
type Ledger = bufpool.Ledger

// Stats is a snapshot of a Conn.
type Stats struct {
	Channels        []ChannelStats `json:"channels"`
	ControlSent     uint64         `json:"control_sent"`
	ControlReceived uint64         `json:"control_received"`
	MemoryPinned    int            `json:"memory_pinned"` // bytes registered in all
}

type txCounters struct {
	frames, bytes, tooLong, invalid, posts, noCredit, noSlot, solicited, signaled, inline atomic.Uint64
}

type rxCounters struct {
	frames, bytes, dropped, overMTU, portBusy, wakeups, updates atomic.Uint64
}

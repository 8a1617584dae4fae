package core

import (
	"sync/atomic"
)

// This is the table of the counters of a data channel, in the form of package counter. A new counter
// is a field here, and an Add where the event happens. T is atomic.Uint64 in the channel, and uint64
// in a snapshot.

// TxCounters count what a sender does: tx is from the port to the peer.
type TxCounters[T any] struct {
	TxFrames           T `json:"tx_frames" metric:"frames" help:"frames sent"`
	TxBytes            T `json:"tx_bytes" metric:"bytes" help:"bytes of these, with the virtio_net_hdr"`
	TxTooLong          T `json:"tx_too_long" metric:"dropped_frames,too_long" help:"dropped: fits no pool, or not the slot"`
	TxInvalid          T `json:"tx_invalid" metric:"dropped_frames,invalid" help:"dropped: the netdevice could not describe it"`
	TxMalformed        T `json:"tx_malformed" metric:"dropped_frames,malformed" help:"dropped: no peer would take it"`
	TxPadded           T `json:"tx_padded" help:"frames that ended within their VLAN tags and were padded"`
	TxPosts            T `json:"tx_posts" metric:"doorbells" help:"batches posted to the data queue pair"`
	TxNoCredit         T `json:"tx_no_credit" metric:"waits,credit" help:"waits for an element of the peer's"`
	TxNoSlot           T `json:"tx_no_slot" metric:"waits,slot" help:"waits for a send slot"`
	TxThrottled        T `json:"tx_throttled" metric:"waits,rate" help:"waits because of a rate"`
	TxIndicated        T `json:"tx_indicated" help:"transfers indicated on the control channel"`
	IndicatesSent      T `json:"indicates_sent" help:"BufferRDMAIndicate messages sent"`
	TxSolicited        T `json:"tx_solicited" help:"transfers that asked for an event at the peer"`
	TxSignaled         T `json:"tx_signaled" help:"transfers that asked for a completion"`
	TxInline           T `json:"tx_inline" help:"transfers that carried their data inline"`
	TxPacks            T `json:"tx_packs" help:"transfers that carried several frames"`
	TxPacked           T `json:"tx_packed" help:"frames in these"`
	TxLent             T `json:"tx_lent" help:"frames that were sent from where they lay, without a copy"`
	TxSealed           T `json:"tx_sealed" help:"transfers that were encrypted"`
	WindowsBound       T `json:"windows_bound" metric:"windows,bound" help:"windows around local pools that were bound"`
	WindowsInvalidated T `json:"windows_invalidated" metric:"windows,invalidated" help:"windows invalidated by this side"`
}

// RxCounters count what a receiver does: rx is from the peer to the port.
type RxCounters[T any] struct {
	RxFrames                 T `json:"rx_frames" metric:"frames" help:"frames received"`
	RxBytes                  T `json:"rx_bytes" metric:"bytes" help:"bytes of these, with the virtio_net_hdr"`
	RxDropped                T `json:"rx_dropped" metric:"dropped_frames,port" help:"dropped: the netdevice refused it"`
	RxOverMTU                T `json:"rx_over_mtu" metric:"dropped_frames,over_mtu" help:"dropped: larger than this side's MTU allows"`
	RxMalformed              T `json:"rx_malformed" metric:"dropped_frames,malformed" help:"dropped: no netdevice would take it"`
	RxUnrevoked              T `json:"rx_unrevoked" metric:"dropped_frames,unrevoked" help:"dropped: the session ended before their windows were revoked"`
	RxLost                   T `json:"rx_lost" metric:"dropped_frames,lost" help:"mode send-uc: messages that did not come"`
	RxLate                   T `json:"rx_late" metric:"dropped_frames,late" help:"mode send-uc: dropped, came after they were counted as lost"`
	RxPortBusy               T `json:"rx_port_busy" metric:"waits,port" help:"waits for a netdevice that was full"`
	RxThrottled              T `json:"rx_throttled" metric:"waits,rate" help:"waits because of a rate"`
	RxWakeups                T `json:"rx_wakeups" help:"sleeps ended by an event"`
	RxIndicated              T `json:"rx_indicated" help:"transfers indicated on the control channel"`
	UpdatesSent              T `json:"updates_sent" help:"BufferRecvPoolUpdate messages sent"`
	RxPacks                  T `json:"rx_packs" help:"transfers that carried several frames"`
	RxPacked                 T `json:"rx_packed" help:"frames in these"`
	RxOpened                 T `json:"rx_opened" help:"transfers that were encrypted, and authentic"`
	Revocations              T `json:"revocations" help:"batches of one-touch elements that were revoked"`
	RevocationTime           T `json:"revocation_ns" help:"nanoseconds from taking the first element of each of these batches until all its windows were invalid"`
	WindowsInvalidatedByPeer T `json:"windows_invalidated_by_peer" metric:"windows,invalidated_by_peer" help:"windows that the peer invalidated, as agreed"`
}

// TxCount has the counters of a sender that works.
type TxCount = TxCounters[atomic.Uint64]

// RxCount has the counters of a receiver that works.
type RxCount = RxCounters[atomic.Uint64]

package messaging

import (
	"fmt"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// sendQueue is the send queue of a data channel: the work requests that have not
// completed, in the order of posting, and their sequence numbers, which are cumulative
// and compared by difference. It is the sender's goroutine's, who alone posts there.
type sendQueue struct {
	ch         *dataQP
	count      *txCounters
	depth      int
	posted     uint32 // or gathered to be
	completed  uint32
	signaled   uint32 // the last one that asked for a completion
	unsignaled int    // slots since then
	ring       inFlightRing
	callbacks  []callback // who hears when work requests have completed, in order
}

func newSendQueue(ch *dataQP, cfg *Config, count *txCounters) sendQueue {
	depth := sqDepth(cfg)
	return sendQueue{ch: ch, count: count, depth: depth,
		ring: inFlightRing{entries: make([]inFlightEntry, depth+cfg.SendSlots+1)}}
}

// sqDepth is how many writes a data channel can have outstanding: as many as
// there are slots, and as many inline ones again.
//
// Windows of one-touch pools are bound and invalidated there as well.
func sqDepth(cfg *Config) int {
	n := 2 * cfg.SendSlots
	if cfg.Protection == ProtectOneTouch {
		n += 2 * bufpool.MaxBatch
	}
	return n
}

// room is how many more work requests can be posted, when so many transfers that have
// completed are to be indicated: those in flight come after them.
func (q *sendQueue) room(toIndicate int) int { return q.depth - int(q.posted-q.completed) - toIndicate }

// signal makes the latest work request one that asks for a completion.
func (q *sendQueue) signal(wr *fabric.SendWR) {
	wr.Flags |= fabric.Signaled
	q.signaled, q.unsignaled = q.posted, 0
}

// number numbers a work request that is no transfer and returns its identifier
// and flags.
func (q *sendQueue) number(signaled bool) (id uint64, flags fabric.Flags) {
	q.posted++
	if signaled {
		flags = fabric.Signaled
		q.signaled, q.unsignaled = q.posted, 0
		q.ring.push(inFlightEntry{seq: q.posted, slot: noSlot}) // something to wait for
	}
	return uint64(protocol.PackWRID(protocol.WRDataWrite, uint8(q.ch.number), 0, q.posted)), flags
}

// drain posts a write of nothing that asks for a completion, and so completes
// what was posted before. A write of no bytes needs neither address nor key
// (InfiniBand Architecture Specification, volume 1, C9-88).
func (q *sendQueue) drain() error {
	id, flags := q.number(true)
	wr := [1]fabric.SendWR{{ID: id, Op: fabric.OpWrite, Flags: flags}}
	if _, err := q.ch.qp.PostSend(wr[:]); err != nil {
		return fmt.Errorf("post a write of nothing on data channel %d: %w", q.ch.number, err)
	}
	return nil
}

// callback is who hears that work requests have completed: the channel's receiver,
// about a batch, or else the pools.
type callback struct {
	rx    rxEvent
	event bufpool.Event
}

// whenCompleted has somebody hear when what was posted last, which asks for a
// completion, has completed.
func (q *sendQueue) whenCompleted(c callback) {
	q.callbacks = append(q.callbacks, c)
	q.ring.newest().callback = true
}

// called returns the next callback.
func (q *sendQueue) called() callback {
	c := q.callbacks[0]
	rest := copy(q.callbacks, q.callbacks[1:])
	q.callbacks[rest] = callback{}
	q.callbacks = q.callbacks[:rest]
	return c
}

// inFlightEntry is a frame on its way, with what is copied behind it, or a work request that
// is none.
type inFlightEntry struct {
	seq      uint32          // of the work request
	slot     uint32          // noSlot if it holds none
	pool     *bufpool.Remote // nil for a frame that is not the first of its transfer
	elem     uint16
	length   uint32 // of the transfer
	indicate bool   // is to be indicated on the control channel when it has completed
	callback bool   // of a work request that is no transfer: somebody hears when it has completed
	inline   bool   // the transfer, of which this is the first frame, has its data in the work request
	lent     bool   // a part of the frame is the port's
}

const noSlot = ^uint32(0)

// inFlightRing is a ring of them.
type inFlightRing struct {
	entries []inFlightEntry
	first   int
	n       int
}

func (f *inFlightRing) len() int { return f.n }

func (f *inFlightRing) push(x inFlightEntry) {
	i := f.first + f.n
	if i >= len(f.entries) {
		i -= len(f.entries)
	}
	f.entries[i] = x
	f.n++
}

// oldest is the one posted first; there must be one.
func (f *inFlightRing) oldest() *inFlightEntry { return &f.entries[f.first] }

// newest is the one posted last; there must be one.
func (f *inFlightRing) newest() *inFlightEntry {
	i := f.first + f.n - 1
	if i >= len(f.entries) {
		i -= len(f.entries)
	}
	return &f.entries[i]
}

func (f *inFlightRing) pop() {
	if f.first++; f.first == len(f.entries) {
		f.first = 0
	}
	f.n--
}

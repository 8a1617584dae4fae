package tx

import (
	"fmt"
	"math"
	"slices"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// sendQueue is the send queue of a data channel: the work requests that have not
// completed, in the order of posting, and their sequence numbers. The numbers are
// cumulative, wrap around, and are compared by their difference. Only the sender's
// goroutine uses it.
type sendQueue struct {
	ch         *core.DataQP
	count      *core.TxCount
	depth      int
	posted     uint32 // last work request posted, or added to the batch
	completed  uint32
	signaled   uint32 // last signaled work request
	unsignaled int    // slots filled since then
	ring       inFlightRing
	awaited    []bufpool.Action // of the entries of ring with action set, in order
}

// firstNumber is the number before that of the first work request. So the numbers wrap around early in
// every session, and not only in one that has lasted for long.
const firstNumber = math.MaxUint32 - 500

func newSendQueue(ch *core.DataQP, o *Options, count *core.TxCount) sendQueue {
	depth := SqDepth(o)
	return sendQueue{
		ch: ch, count: count, depth: depth, posted: firstNumber, completed: firstNumber, signaled: firstNumber,
		ring: inFlightRing{entries: make([]inFlightEntry, depth+o.SendSlots+1)},
	}
}

// SqDepth returns how many work requests a data channel can have outstanding: one write
// for each slot, and as many inline writes. One-touch pools need further requests, which
// bind and invalidate windows.
func SqDepth(o *Options) int {
	n := 2 * o.SendSlots
	if o.OneTouch {
		n += 2 * bufpool.MaxBatch
	}
	return n
}

// room returns how many more work requests can be posted. toIndicate is the number of
// completed transfers whose indication is pending: indications are sent in order, so each
// of these takes up a place like a transfer in flight.
func (q *sendQueue) room(toIndicate int) int { return q.depth - int(q.posted-q.completed) - toIndicate }

// signal makes wr, the latest work request, signaled.
func (q *sendQueue) signal(wr *fabric.SendWR) {
	wr.Flags |= fabric.Signaled
	q.signaled, q.unsignaled = q.posted, 0
}

// number assigns a sequence number to a work request other than a transfer, and returns
// its identifier and flags.
func (q *sendQueue) number(signaled bool) (id uint64, flags fabric.Flags) {
	q.posted++
	if signaled {
		flags = fabric.Signaled
		q.signaled, q.unsignaled = q.posted, 0
		q.ring.push(inFlightEntry{seq: q.posted, slot: noSlot}) // holds no slot, is only waited for
	}
	return uint64(protocol.PackWRID(protocol.WRDataWrite, uint8(q.ch.Number), 0, q.posted)), flags
}

// drain posts a signaled write of zero bytes. Its completion implies that all work
// requests posted before it have completed. A write of zero bytes needs neither address
// nor key (InfiniBand Architecture Specification, volume 1, C9-88).
func (q *sendQueue) drain() error {
	id, flags := q.number(true)
	wr := [1]fabric.SendWR{{ID: id, Op: fabric.OpWrite, Flags: flags}}
	if _, err := q.ch.QP.PostSend(wr[:]); err != nil {
		return fmt.Errorf("post a write of nothing on data channel %d: %w", q.ch.Number, fabric.Refused(q.ch.QP, err))
	}
	return nil
}

// whenCompleted records that an action is carried out when the work request that was posted last, which
// must be signaled, has completed.
func (q *sendQueue) whenCompleted(act bufpool.Action) {
	q.awaited = append(q.awaited, act)
	q.ring.newest().action = true
}

// nextCompleted removes and returns the first of these actions.
func (q *sendQueue) nextCompleted() bufpool.Action {
	act := q.awaited[0]
	q.awaited = slices.Delete(q.awaited, 0, 1)
	return act
}

// inFlightEntry is a frame in flight, with the frames copied behind it in its slot, or a
// work request other than a transfer.
type inFlightEntry struct {
	seq      uint32          // of the work request
	slot     uint32          // noSlot if none
	pool     *bufpool.Remote // nil for a frame that is not the first of its transfer
	elem     uint16
	length   uint32 // of the transfer
	indicate bool   // the transfer is indicated on the control channel when it has completed
	action   bool   // not a transfer: with its completion the first of sendQueue.awaited is carried out
	inline   bool   // first frame of an inline transfer
	lent     bool   // the rest of the frame is lent by the port
}

const noSlot = ^uint32(0)

// inFlightRing is a first-in, first-out ring of entries.
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

// oldest returns the entry posted first. The ring must not be empty.
func (f *inFlightRing) oldest() *inFlightEntry { return &f.entries[f.first] }

// newest returns the entry posted last. The ring must not be empty.
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

// Options are the settings of a sender. The fields without a comment are those of Config with
// the same names.
type Options struct {
	SendSlots   int
	Batch       int
	BatchBytes  int
	SignalEvery int
	PackCopy    int
	NoPack      bool
	MaxSGE      int            // pieces of a work request that the device takes
	OneTouch    bool           // the sender binds windows around the elements of local pools
	ZeroCopy    *memory.Budget // nil: frames are copied
	Path        *capture.Path  // nil: there is none
	Poll        bool
	Sealer      *seal.Sealer // nil: transfers are sent as they are
}

// tail returns the number of bytes behind a transfer that sealing needs.
func (o *Options) tail() int {
	if o.Sealer == nil {
		return 0
	}
	return seal.Overhead
}

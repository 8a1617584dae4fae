package tx

import (
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/vnet"
)

// mostPieces is the largest number of lent pieces of a frame. The longest frame of a Linux
// guest has that many: 17 pieces of 4 KiB, and its headers.
const mostPieces = 19

// LentPieces returns how many lent pieces of a frame a transfer has room for, or 0 if
// nothing is lent. Lent memory belongs to the port's user, so a frame that is sealed is copied.
func LentPieces(o *Options) int {
	if o.ZeroCopy == nil || o.Sealer != nil {
		return 0
	}
	return max(0, min(o.MaxSGE-1, mostPieces))
}

// loans has the loans of a sender: all but the beginnings of frames that it has read and
// whose writes have not completed. Only the sender's goroutine uses it. Each loan is
// returned exactly once: when its write has completed (used), when the frame is copied
// (fetch) or dropped (giveUp), or when the session has closed its queue pairs (close of
// input).
type loans struct {
	port core.ZeroCopyPort
	keys *atomic.Pointer[vnet.Keys] // keys of the session; holds nil if nothing is registered

	lent []vnet.Lent // for each of input.ops
	sent []vnet.Loan // by slot, for frames in a batch or in flight; zero for others
	out  int         // number of loans in sent
	back []vnet.Loan // loans that settle will return
	ends sync.Once

	recall atomic.Bool // the port needs back the loans whose frames are not sent; it sets this
}

// newLoans returns nil if the port lends nothing, or if the configuration does not allow
// it. wake is called when the port needs back all loans whose frames are not sent yet.
func newLoans(o *Options, keys *atomic.Pointer[vnet.Keys], port core.Port, wake func()) *loans {
	p, ok := port.(core.ZeroCopyPort)
	room := LentPieces(o)
	if !ok || room == 0 {
		return nil
	}
	l := &loans{
		port: p, keys: keys, lent: make([]vnet.Lent, o.Batch),
		sent: make([]vnet.Loan, o.SendSlots), back: make([]vnet.Loan, 0, o.SendSlots),
	}
	pieces := make([]vnet.Piece, room*len(l.lent))
	for i := range l.lent {
		l.lent[i].Pieces = pieces[i*room : i*room : (i+1)*room]
	}
	p.OnRecall(func() {
		l.recall.Store(true)
		wake()
	})
	return l
}

// recalled reports whether the port has asked for its loans since the last call. l may be nil.
func (l *loans) recalled() bool { return l != nil && l.recall.Swap(false) }

// read reads frames like Port.ReadFrames. Nothing is lent while frames are captured,
// because a capture needs whole frames.
func (l *loans) read(ops []vnet.ReadOp, path *capture.Path) int {
	l.forget(len(ops))
	keys := l.keys.Load()
	if keys == nil || path.Watched() {
		return l.port.ReadFrames(ops)
	}
	return l.port.ReadLent(ops, l.lent[:len(ops)], keys)
}

// forget marks the first n operations as having no lent parts.
func (l *loans) forget(n int) {
	for i := range l.lent[:n] {
		l.lent[i].Pieces = l.lent[i].Pieces[:0]
	}
}

// fetch copies the lent part of operation i into its slot, and returns the loan.
func (l *loans) fetch(op *vnet.ReadOp, i int) { l.port.Fetch(op, &l.lent[i]) }

// giveUp returns the loan of a frame that is dropped.
func (l *loans) giveUp(x *vnet.Lent) {
	x.Pieces = x.Pieces[:0]
	l.port.Return([]vnet.Loan{x.Loan})
}

// use records that the frame in a slot has been added to the batch.
func (l *loans) use(slot uint32, x *vnet.Lent) {
	l.sent[slot] = x.Loan
	l.out++
}

// used records that the write of the frame in a slot has completed.
func (l *loans) used(slot uint32) {
	l.back = append(l.back, l.sent[slot])
	l.sent[slot] = vnet.Loan{}
	l.out--
}

// settle returns the loans of completed writes. l may be nil.
func (l *loans) settle() {
	if l != nil && len(l.back) > 0 {
		l.port.Return(l.back)
		l.back = l.back[:0]
	}
}

// outstanding reports whether a lent frame is in a batch or in flight. l may be nil.
func (l *loans) outstanding() bool { return l != nil && l.out > 0 }

// leave makes the port stop calling recall, after the sender's goroutine has returned. l
// may be nil.
func (l *loans) leave() {
	if l != nil {
		l.ends.Do(func() { l.port.OnRecall(nil) }) // once: the next session may use the port by now
	}
}

package messaging

import (
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/vnet"
)

// mostPieces is how many pieces a frame has at most that is lent: as many as the longest
// one of a Linux guest, with 17 of 4 KiB and its headers.
const mostPieces = 19

// lentPieces is how many pieces of a frame that is lent a transfer has room for, 0 if none
// is lent.
func lentPieces(cfg *Config) int {
	if cfg.ZeroCopy == nil {
		return 0
	}
	return max(0, min(cfg.Device.Limits().MaxSGE-1, mostPieces))
}

// loans are what a sender has of its port's: frames, but for their beginnings, which were
// read, and are on their way to the peer. They are the sender's goroutine's.
// Each loan is returned once: when its write has completed (used), when what is lent is
// copied (fetch) or dropped (giveUp), or when the session has closed its queue pairs
// (close).
type loans struct {
	port ZeroCopyPort
	keys *atomic.Pointer[vnet.Keys] // of the session; nil in there: nothing is registered

	lent []vnet.Lent // of input.ops
	sent []vnet.Loan // by slot, of frames in a batch or in flight; zero for others
	out  int         // of those
	back []vnet.Loan // that are to be returned
	ends sync.Once
}

// newLoans returns nil if the port lends nothing, or there is to be no memory for that.
// recall is called when the port wants everything back that is not sent.
func newLoans(cfg *Config, keys *atomic.Pointer[vnet.Keys], port Port, recall func()) *loans {
	p, ok := port.(ZeroCopyPort)
	room := lentPieces(cfg)
	if !ok || room == 0 {
		return nil
	}
	l := &loans{
		port: p, keys: keys, lent: make([]vnet.Lent, cfg.Batch),
		sent: make([]vnet.Loan, cfg.SendSlots), back: make([]vnet.Loan, 0, cfg.SendSlots),
	}
	pieces := make([]vnet.Piece, room*len(l.lent))
	for i := range l.lent {
		l.lent[i].Pieces = pieces[i*room : i*room : (i+1)*room]
	}
	p.OnRecall(recall)
	return l
}

// read is ReadFrames. Nothing is lent while somebody captures frames, who looks at all of
// them.
func (l *loans) read(ops []vnet.ReadOp, path *capture.Path) int {
	l.forget(len(ops))
	keys := l.keys.Load()
	if keys == nil || path.Watched() {
		return l.port.ReadFrames(ops)
	}
	return l.port.ReadLent(ops, l.lent[:len(ops)], keys)
}

// forget says that of the first n operations nothing is lent.
func (l *loans) forget(n int) {
	for i := range l.lent[:n] {
		l.lent[i].Pieces = l.lent[i].Pieces[:0]
	}
}

// fetch copies what is lent of operation i.
func (l *loans) fetch(op *vnet.ReadOp, i int) { l.port.Fetch(op, &l.lent[i]) }

// giveUp returns what is lent of a frame that is not sent.
func (l *loans) giveUp(x *vnet.Lent) {
	x.Pieces = x.Pieces[:0]
	l.port.Return([]vnet.Loan{x.Loan})
}

// use notes that the frame in a slot is in the batch.
func (l *loans) use(slot uint32, x *vnet.Lent) {
	l.sent[slot] = x.Loan
	l.out++
}

// used notes that its write has completed.
func (l *loans) used(slot uint32) {
	l.back = append(l.back, l.sent[slot])
	l.sent[slot] = vnet.Loan{}
	l.out--
}

// settle returns what writes that have completed have used. l may be nil.
func (l *loans) settle() {
	if l != nil && len(l.back) > 0 {
		l.port.Return(l.back)
		l.back = l.back[:0]
	}
}

// outstanding reports whether something is lent that is on its way to the peer. l may be nil.
func (l *loans) outstanding() bool { return l != nil && l.out > 0 }

// leave is for the end of the sender's goroutine: the port does not call it any more. l may
// be nil.
func (l *loans) leave() {
	if l != nil {
		l.ends.Do(func() { l.port.OnRecall(nil) }) // once: the next session may use the port by now
	}
}

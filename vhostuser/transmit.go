package vhostuser

import (
	"fmt"
	"runtime/debug"

	"github.com/splitnic/splitnic/vnet"
)

const (
	// lendFrom is from how many bytes on a frame is lent: to lend one costs as much as to
	// copy that many (BenchmarkTransmit), as its chain is given back by itself.
	lendFrom = 16 << 10
	// lendHead is how much of a frame that is lent is copied: all that anybody judges it by.
	lendHead = 256
)

// borrower is who can send frames from where they lie.
type borrower struct {
	lent []vnet.Lent // of the operations
	keys *vnet.Keys
}

// read reads frames that the driver transmits, and returns how many of ops it has filled. If
// there are none it has the driver kick when there are, if it is to sleep. to, which may
// be nil, are whom long frames are lent.
func (v *vring) read(ops []vnet.ReadOp, to *borrower, sleep bool) (n int) {
	v.mu.Lock()
	defer v.leave(debug.SetPanicOnFault(true))
	discards := v.discards.Load()
	if v.ring == nil || !v.running.Load() && !discards {
		return 0
	}
	if sleep {
		v.arm(true)
	}
	bytes, allowed := uint64(0), v.shared.allowed()
	for n < len(ops) {
		if v.finish.more() {
			v.finish.next(&ops[n])
			n++
			continue
		}
		if len(v.held) >= int(v.size) { // more than there are does not happen to an honest driver
			break
		}
		there, err := v.ring.next()
		lent := false
		switch {
		case err != nil || !there:
		case discards:
			ops[n].Frame, ops[n].Err = nil, vnet.ErrFiltered
			v.count.dropped.Add(1)
		case to != nil:
			if lent, err = v.lend(&ops[n], &to.lent[n], to.keys, allowed); err == nil && !lent {
				err = v.load(&ops[n])
			}
		default:
			err = v.load(&ops[n])
		}
		if err != nil {
			v.ring.publish()
			v.fail(err)
			break
		}
		if !there {
			if n == 0 && v.again(sleep) {
				continue
			}
			break
		}
		v.hold(!lent)
		if lent {
			bytes += uint64(to.lent[n].Size)
			n++
			continue
		}
		bytes += uint64(len(ops[n].Frame))
		if ops[n].Err == nil && wants(ops[n].Frame)&^allowed != 0 {
			v.finish.begin(&ops[n])
			if ops[n].Err == nil {
				continue
			}
			v.count.dropped.Add(1)
		}
		n++
	}
	if n > 0 && v.ring != nil {
		v.arm(false)
		v.publish()
	}
	if n > 0 {
		v.count.frames.Add(uint64(n))
		v.count.bytes.Add(bytes)
	}
	return n
}

// load copies the frame of a chain. The error is the driver's, that of the frame is the
// operation's.
func (v *vring) load(op *vnet.ReadOp) error {
	r := v.ring.base()
	op.Frame, op.Err = nil, nil
	size := r.chain.size - uint64(v.header) + vnet.HdrLen
	switch {
	case r.chain.size < uint64(v.header):
		return fmt.Errorf("%w: a frame of %d bytes, without room for its header", ErrRing, r.chain.size)
	case size < vnet.MinFrame:
		op.Err = vnet.ErrInvalid
	case size > vnet.MaxFrame || size > uint64(len(op.Slot)):
		op.Err = vnet.ErrTooLong
	}
	if op.Err != nil {
		v.count.dropped.Add(1)
		return nil
	}
	if b := r.chain.bufs[0]; len(r.chain.bufs) == 1 {
		if p := r.mem.at(b.addr, b.len, &r.hint); len(p) == int(b.len) {
			copy(op.Slot[:vnet.HdrLen], p)
			copy(op.Slot[vnet.HdrLen:], p[v.header:])
			op.Frame = op.Slot[:size]
			return nil
		}
	}
	if _, err := r.load(op.Slot[:vnet.HdrLen], 0); err != nil {
		return err
	}
	if _, err := r.load(op.Slot[vnet.HdrLen:size], v.header); err != nil {
		return err
	}
	op.Frame = op.Slot[:size]
	return nil
}

// wants is what a frame leaves to who sends it on.
func wants(head []byte) (o vnet.Offloads) {
	if head[0]&vnet.FlagNeedsCsum != 0 {
		o |= vnet.CSUM
	}
	switch head[1] &^ vnet.GSOECN {
	case vnet.GSOTCPv4:
		o |= vnet.TSO4
	case vnet.GSOTCPv6:
		o |= vnet.TSO6
	case vnet.GSOUDPL4:
		o |= vnet.USO
	}
	if head[1]&vnet.GSOECN != 0 {
		o |= vnet.TSOECN
	}
	return o
}

// lend is load for a frame that may be left where it lies but for its beginning. It is
// copied if it is short, is to be finished here, lies in too many places or in memory that
// is not registered, or has to be given back soon. Its chain is not given back.
func (v *vring) lend(op *vnet.ReadOp, l *vnet.Lent, keys *vnet.Keys, allowed vnet.Offloads) (lent bool, err error) {
	r := v.ring.base()
	size := r.chain.size - uint64(v.header) + vnet.HdrLen
	if r.chain.size < v.shared.lendFrom || size > vnet.MaxFrame || size > uint64(len(op.Slot)) ||
		keys.Memory != r.mem.shared || v.shared.recalled.Load() {
		return false, nil
	}
	head := op.Slot[:lendHead]
	if _, err := r.load(head[:vnet.HdrLen], 0); err != nil || wants(head)&^allowed != 0 {
		return false, err
	}
	if _, err := r.load(head[vnet.HdrLen:], v.header); err != nil {
		return false, err
	}
	// Last, as an access to memory that is gone would leave pieces behind.
	if ok, err := r.pieces(l, v.header+lendHead-vnet.HdrLen, keys); !ok || err != nil {
		l.Pieces = l.Pieces[:0]
		return false, err
	}
	op.Frame, op.Err = head, nil
	l.Size = int(size)
	l.Loan = vnet.Loan{
		Memory: keys.Memory, Ring: uint32(v.number), Epoch: v.epoch, Chain: v.first + uint32(len(v.held)),
	}
	keys.Memory.Lend(1)
	return true, nil
}

// pieces finds where the chain's bytes lie, from skip on, and reports whether there is
// room for all of these pieces and a device can read them. What lies side by side is one.
func (r *common) pieces(l *vnet.Lent, skip int, keys *vnet.Keys) (ok bool, err error) {
	for _, b := range r.chain.bufs {
		if skip >= int(b.len) {
			skip -= int(b.len)
			continue
		}
		b.addr += uint64(skip)
		b.len -= uint32(skip)
		skip = 0
		for b.len > 0 {
			p := r.mem.at(b.addr, b.len, &r.hint)
			if len(p) == 0 {
				return false, errAddress(b)
			}
			key := keys.Keys[r.hint]
			if !key.Known {
				return false, nil
			}
			if !l.Extend(p, key.LKey) {
				return false, nil
			}
			b.addr += uint64(len(p))
			b.len -= uint32(len(p))
		}
	}
	return len(l.Pieces) > 0, nil
}

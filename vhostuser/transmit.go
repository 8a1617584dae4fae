package vhostuser

import (
	"fmt"
	"runtime/debug"

	"github.com/splitnic/splitnic/vnet"
)

const (
	// lendFrom is the smallest size in bytes of a frame that is lent. Lending costs as much as
	// copying that many bytes (BenchmarkTransmit), because the chain is returned separately.
	lendFrom = 16 << 10
	// lendHead is the number of bytes of a lent frame that are copied: all that is checked.
	lendHead = 256
)

// borrower has the arguments of ReadLent.
type borrower struct {
	lent []vnet.Lent // for each operation
	keys *vnet.Keys
}

// read reads frames that the driver transmits, and returns the number of ops that it has filled. sleep
// means that the caller sleeps if there are none: the driver then kicks when it makes frames available.
// Long frames are lent to the borrower, unless to is nil.
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
		if len(v.held) >= int(v.size) { // a driver that keeps the rules has no more
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

// load copies the frame of a chain. It returns an error of the driver. op.Err is an error of the frame.
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

// wants returns the offloads that a frame needs. What the frame's receiver does not know it drops.
func wants(head []byte) vnet.Offloads {
	o, _ := vnet.Needs(head)
	return o
}

// lend is load for a frame of which only the beginning is copied. lent is false if the frame has to be
// copied: because it is short, needs an offload in software, has too many pieces or pieces in memory
// that is not registered, or because buffers are recalled. The chain of a lent frame is not returned.
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
	// This is last, because a fault would leave pieces behind.
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

// pieces sets the pieces of the chain's bytes, from skip on. It returns false if there are too many, or
// if the memory of a piece is not registered. Adjacent pieces are joined.
func (r *common) pieces(l *vnet.Lent, skip int, keys *vnet.Keys) (ok bool, err error) {
	err = r.each(skip, func(p []byte) bool {
		key := keys.Keys[r.hint]
		ok = key.Known && l.Extend(p, key.LKey)
		return ok
	})
	return ok && err == nil, err
}

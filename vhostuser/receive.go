package vhostuser

import (
	"encoding/binary"
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// Bare errors, made once: a conversion for each call would allocate.
var (
	errAgain   error = unix.EAGAIN
	errDown    error = unix.EIO
	errInvalid error = unix.EINVAL
	errTooLong error = unix.EMSGSIZE
)

// write writes frames to buffers that the driver receives by, and returns how many of
// ops are done with. If there is no room for the next one it has the driver kick when it
// makes some, if the receiver is to sleep.
func (v *vring) write(ops []vnet.WriteOp, sleep bool) (n int) {
	v.mu.Lock()
	defer v.leave(debug.SetPanicOnFault(true))
	if v.ring == nil || !v.running.Load() {
		return drop(ops, errDown)
	}
	if sleep {
		v.arm(true)
	}
	bytes, dropped, lost := uint64(0), uint64(0), 0
	for n < len(ops) {
		op := &ops[n]
		room, err := v.deliver(op)
		if err != nil {
			v.ring.publish()
			v.fail(err)
			lost = drop(ops[n:], errDown)
			break
		}
		if !room {
			if n == 0 && v.again(sleep) {
				continue
			}
			break
		}
		if op.Err == nil {
			bytes += uint64(len(op.Head) + len(op.Rest))
		} else {
			dropped++
		}
		n++
	}
	if n > 0 && v.ring != nil {
		v.unarm()
	}
	v.publish() // also a part of a frame
	if n > 0 {
		v.count.frames.Add(uint64(n) - dropped)
		v.count.bytes.Add(bytes)
		v.count.dropped.Add(dropped)
	}
	return n + lost
}

// drop gives all of ops the error.
func drop(ops []vnet.WriteOp, err error) int {
	for i := range ops {
		ops[i].Err = err
	}
	return len(ops)
}

// deliver writes one frame, if there is room, or what it is finished to. The error is the
// driver's.
func (v *vring) deliver(op *vnet.WriteOp) (room bool, err error) {
	op.Err = nil
	if len(op.Head) < vnet.MinFrame {
		op.Err = errInvalid
		return true, nil
	}
	copy(v.raw[:vnet.HdrLen], op.Head) // once: whoever has written it may write it again
	if wants(v.raw[:])&^v.takes == 0 {
		return v.place(op)
	}
	return v.deliverFinished(op)
}

// place writes one frame, with the header in raw, to as many buffers as it takes. Nothing is taken of them if there
// are too few.
func (v *vring) place(op *vnet.WriteOp) (room bool, err error) {
	need := uint64(v.header - vnet.HdrLen + len(op.Head) + len(op.Rest))
	r := v.ring.base()
	v.ring.mark()
	there, err := v.ring.next()
	if err != nil || !there {
		return false, err
	}
	if r.chain.size < uint64(v.header) {
		return false, fmt.Errorf("%w: a buffer of %d bytes, without room for a header", ErrRing, r.chain.size)
	}
	if r.chain.size >= need {
		if v.placeWhole(op, need) {
			return true, nil
		}
		return true, v.fill(op, 1, need)
	}
	if !r.feats.has(featMrgRxbuf) {
		v.ring.rewind()
		op.Err = errTooLong
		return true, nil
	}
	// How many there are has to be known before the first one is written. What they are
	// may be another the second time: fill sees to it that this does no harm.
	count, size := uint32(1), r.chain.size
	for size < need {
		if there, err = v.ring.next(); err != nil {
			return false, err
		}
		if !there || count == r.size {
			v.ring.rewind()
			if count == r.size {
				op.Err = errTooLong // the ring will never have room
			}
			return count == r.size, nil
		}
		count++
		size += r.chain.size
	}
	v.ring.rewind()
	if there, err = v.ring.next(); err != nil || !there {
		return false, errChanged(err)
	}
	return true, v.fill(op, count, need)
}

// placeWhole is fill for a chain of one buffer in one piece of memory, which most are. It
// reports whether that is so. What the driver has said of the buffer was loaded once, and the
// memory is looked up by that.
func (v *vring) placeWhole(op *vnet.WriteOp, need uint64) bool {
	r := v.ring.base()
	if len(r.chain.bufs) != 1 {
		return false
	}
	p := r.mem.at(r.chain.bufs[0].addr, uint32(need), &r.hint)
	if uint64(len(p)) != need {
		return false
	}
	binary.LittleEndian.PutUint16(v.raw[vnet.HdrLen:], 1)
	n := copy(p, v.raw[:v.header])
	n += copy(p[n:], op.Head[vnet.HdrLen:])
	copy(p[n:], op.Rest)
	r.put(used{id: r.chain.id, slots: r.chain.slots, len: uint32(need)})
	return true
}

// errChanged is for what was there when it was looked at first.
func errChanged(err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: buffers that were available are not any more", ErrRing)
}

// fill writes a frame to so many chains, of which the first one was taken: need bytes
// with its header.
func (v *vring) fill(op *vnet.WriteOp, count uint32, need uint64) error {
	r := v.ring.base()
	binary.LittleEndian.PutUint16(v.raw[vnet.HdrLen:], uint16(count))
	skip := v.header // of the first chain
	if n, err := r.store(v.raw[:v.header], 0); err != nil || n < v.header {
		return errChanged(err)
	}
	head, rest := op.Head[vnet.HdrLen:], op.Rest
	for i := uint32(0); ; {
		size := min(r.chain.size, need)
		n, err := r.store(head, skip)
		if err != nil {
			return err
		}
		head = head[n:]
		if len(head) == 0 && len(rest) > 0 {
			m, err := r.store(rest, skip+n)
			if err != nil {
				return err
			}
			rest = rest[m:]
		}
		need -= size
		v.ring.put(used{id: r.chain.id, slots: r.chain.slots, len: uint32(size)})
		if i++; i == count {
			break
		}
		skip = 0
		if there, err := v.ring.next(); err != nil || !there {
			return errChanged(err)
		}
	}
	if len(head)+len(rest) > 0 {
		return errChanged(nil)
	}
	return nil
}

// deliverFinished is deliver for a frame of which the driver does not take what is left to
// do: it gets as many frames as that makes. Where it keeps fewer buffers available than that,
// it gets some of them at a time, and the writer is told that there is no room until it has
// got all. The rest is lost if another frame is written then, as the writer is gone.
func (v *vring) deliverFinished(op *vnet.WriteOp) (room bool, err error) {
	f := &v.finish
	if !f.more() || !f.Holds(op.Head, op.Rest) {
		f.at, f.segments = 0, 0
		n, failed := f.Begin(op.Head, op.Rest)
		if failed != nil {
			op.Err = failed
			return true, nil
		}
		if room, err := v.enough(n); err != nil || !room {
			return false, err
		}
		f.segments = n
	}
	clear(v.raw[:]) // nothing is left to do
	for f.more() {
		segment := vnet.WriteOp{Head: f.Segment(f.at)}
		if room, err = v.place(&segment); err != nil || !room {
			return false, err
		}
		if f.at++; segment.Err != nil {
			f.at, op.Err = f.segments, errTooLong // buffers are smaller than segments: the rest is lost
		}
	}
	return true, nil
}

// enough reports whether there are enough chains to begin with n frames that make one: for all
// of them, or for one, if nobody knows that the driver will ever have so many available.
func (v *vring) enough(n int) (bool, error) {
	defer v.ring.rewind()
	v.ring.mark()
	for have := range n {
		there, err := v.ring.next()
		if err != nil {
			return false, err
		}
		if !there {
			v.most = max(v.most, have)
			return have > 0 && n > min(v.most, int(v.size)/2), nil
		}
	}
	v.most = max(v.most, n)
	return true, nil
}

package vhostuser

import (
	"encoding/binary"
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// Errors of frames, which are not wrapped.
const (
	errAgain   = unix.EAGAIN
	errDown    = unix.EIO
	errInvalid = unix.EINVAL
	errTooLong = unix.EMSGSIZE
)

// write writes frames to buffers of the driver, and returns the number of ops that are done. sleep
// means that the caller sleeps if there is no room: the driver then kicks when it makes buffers
// available.
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
	v.publish() // also for a part of a frame
	if n > 0 {
		v.count.frames.Add(uint64(n) - dropped)
		v.count.bytes.Add(bytes)
		v.count.dropped.Add(dropped)
	}
	return n + lost
}

// drop sets the error of all ops.
func drop(ops []vnet.WriteOp, err error) int {
	for i := range ops {
		ops[i].Err = err
	}
	return len(ops)
}

// deliver writes one frame, or its segments, if there is room. err is an error of the driver.
func (v *vring) deliver(op *vnet.WriteOp) (room bool, err error) {
	op.Err = nil
	if len(op.Head) < vnet.MinFrame {
		op.Err = errInvalid
		return true, nil
	}
	copy(v.raw[:vnet.HdrLen], op.Head) // once, because the sender can still change it
	if wants(v.raw[:])&^v.takes == 0 {
		return v.place(op)
	}
	return v.deliverFinished(op)
}

// place writes one frame, with the header in raw, to one chain or several. If there are too few
// chains, it uses none.
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
	// The number of chains has to be known before the first one is written. The driver can
	// change the chains before they are read again: fill checks them.
	count, size := uint32(1), r.chain.size
	for size < need {
		if there, err = v.ring.next(); err != nil {
			return false, err
		}
		if !there || count == r.size {
			v.ring.rewind()
			if count == r.size {
				op.Err = errTooLong // the ring has never enough room
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

// placeWhole is fill for the usual case of a chain with one buffer in one region. It returns false in
// other cases. It uses the copy of the descriptor, which was loaded once.
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

// errChanged returns the error for chains that have changed since they were counted.
func errChanged(err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: buffers that were available are not any more", ErrRing)
}

// fill writes a frame of need bytes, including its header, to count chains. next has returned the
// first one.
func (v *vring) fill(op *vnet.WriteOp, count uint32, need uint64) error {
	r := v.ring.base()
	binary.LittleEndian.PutUint16(v.raw[vnet.HdrLen:], uint16(count))
	skip := v.header // in the first chain
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

// deliverFinished is deliver for a frame with an offload that the driver does not support: it writes
// the segments of the frame. If the driver makes fewer buffers available than there are segments,
// some segments are written at a time, and room is false until all have been written. The remaining
// segments are lost if the writer continues with another frame.
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
	clear(v.raw[:]) // segments have no offloads
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

// enough reports whether there are enough chains to begin with the n segments of a frame: n, or one
// if the driver was never seen to make n chains available.
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

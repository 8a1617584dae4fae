package lan

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/framefd"
	"github.com/splitnic/splitnic/vnet"
)

// ReadFrames implements Queue.
//
// borrowed: ops and their slots, for the call.
func (q *packetQueue) ReadFrames(ops []vnet.ReadOp) int {
	if len(ops) == 0 {
		return 0
	}
	op := &ops[0]
	op.Frame, op.Err = q.ReadFrame(op.Slot)
	if op.Err != nil && op.Err != vnet.ErrTooLong || !framefd.Small(len(op.Frame)) {
		return 1
	}
	done := 1
	for more := true; more && done < len(ops); {
		var n int
		n, more = q.readBurst(ops[done:][:q.burst.Next(len(ops)-done)])
		done += n
	}
	return done
}

// readBurst calls recvmmsg(2) once. It returns how many of ops it has filled, and whether
// another call may find more frames.
func (q *packetQueue) readBurst(ops []vnet.ReadOp) (done int, more bool) {
	asked := 0
	for i := range ops {
		if len(ops[i].Slot) < vnet.Headroom+vnet.MinFrame {
			break
		}
		q.in.prepare(i, ops[i].Slot)
		asked++
	}
	if asked == 0 {
		return 0, false
	}
	n, err := q.fd.ReceiveMany(q.in.headers[:asked], unix.MSG_TRUNC)
	for err != nil && q.passing(err) {
		n, err = q.fd.ReceiveMany(q.in.headers[:asked], unix.MSG_TRUNC)
	}
	q.in.forget(asked)
	if err != nil {
		ops[0].Frame, ops[0].Err = nil, err
		q.burst.Saw(asked, 0, 0)
		return 1, false
	}
	bytes := 0
	for i := range ops[:n] {
		m, op := &q.in.headers[i], &ops[i]
		bytes += int(m.Len)
		op.Frame, op.Err = q.received(op.Slot, int(m.Len), q.in.control[i].data[:m.Hdr.Controllen])
		if op.Frame == nil && op.Err == nil {
			continue // dropped and counted
		}
		if done != i {
			ops[done].Move(op)
		}
		done++
	}
	more = q.burst.Saw(asked, n, bytes)
	if n < asked {
		ops[done].Frame, ops[done].Err = nil, unix.EAGAIN
		return done + 1, false
	}
	return done, more && done > 0
}

// WriteFrames implements Queue.
//
// borrowed: ops and their frames, for the call.
func (q *packetQueue) WriteFrames(ops []vnet.WriteOp) int {
	for done := 0; done < len(ops); {
		done += q.writeBurst(ops[done:])
		if done == len(ops) {
			break
		}
		// This frame cannot be part of a burst, or has ended one. It is written by itself, as
		// sendmmsg(2) returns an error for its first message only.
		op := &ops[done]
		if op.Err = q.WriteParts(op.Head, op.Rest); op.Err == unix.EAGAIN {
			return done
		}
		done++
	}
	return len(ops)
}

// writeBurst writes frames with sendmmsg(2), up to the first one that cannot be written, and
// returns how many it has written.
func (q *packetQueue) writeBurst(ops []vnet.WriteOp) int {
	if q.down.Load() {
		return 0
	}
	n := 0
	for n < min(len(ops), framefd.MaxBurst) && len(ops[n].Head) >= vnet.MinFrame {
		op, h, iovs := &ops[n], &q.out.headers[n].Hdr, &q.out.iovs[n]
		vnet.RewriteHdrLen(op.Head)
		iovs[0].Base, iovs[1].Base = unsafe.SliceData(op.Head), unsafe.SliceData(op.Rest)
		iovs[0].SetLen(len(op.Head))
		iovs[1].SetLen(len(op.Rest))
		h.SetIovlen(1)
		if len(op.Rest) > 0 {
			h.SetIovlen(2)
		}
		op.Err = nil
		n++
	}
	if n < 2 {
		q.out.forget(n)
		return 0
	}
	written, err := q.fd.SendMany(q.out.headers[:n])
	q.out.forget(n)
	if err != nil {
		return 0
	}
	return written
}

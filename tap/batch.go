package tap

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/framefd"
	"github.com/splitnic/splitnic/vnet"
)

// UseRings lets ReadFrames and WriteFrames move many small frames in one system call, which
// requires Linux 6.4. It must be called after the queue is attached to a device and before
// any frame is moved. After an error ReadFrames and WriteFrames work, and move frames one by
// one.
func (q *Queue) UseRings() error {
	if q.plain {
		return nil // its frames in memory have a header that the device does not have
	}
	return q.fd.UseRings()
}

// Rings reports whether UseRings has succeeded.
func (q *Queue) Rings() bool { return q.fd.Rings() }

// ReadFrames reads frames into the slots of ops, from the first on, and returns how many of
// ops it has filled: 0 only if ops is empty. Only the last of these can have unix.EAGAIN, or
// another error that does not concern a single frame. ReadFrames returns early rather than
// fill many slots with long frames.
//
// borrowed: ops and their slots, for the call.
func (q *Queue) ReadFrames(ops []vnet.ReadOp) int {
	for n := range ops {
		op := &ops[n]
		op.Frame, op.Err = q.ReadFrame(op.Slot)
		switch {
		case op.Err == nil && !framefd.Small(len(op.Frame)), final(op.Err):
			return n + 1
		case q.fd.Rings():
			return n + 1 + q.readBursts(ops[n+1:])
		}
	}
	return len(ops)
}

// final reports whether err does not concern a single frame, so that reading on is of no use.
func final(err error) bool { return err != nil && err != vnet.ErrTooLong && err != vnet.ErrInvalid }

// readBursts is ReadFrames for the frames after the first one: through the ring, unless it asks for a
// single frame, for which read(2) costs less. It may return 0.
func (q *Queue) readBursts(ops []vnet.ReadOp) int {
	done := 0
	for more := true; more && done < len(ops); {
		n := q.burst.Next(len(ops) - done)
		if n > 1 {
			n, more = q.readBurst(ops[done:][:n])
		} else {
			more = q.readOne(&ops[done])
		}
		done += n
	}
	return done
}

// readOne reads a frame, and returns whether reading on may find more.
func (q *Queue) readOne(op *vnet.ReadOp) (more bool) {
	op.Frame, op.Err = q.ReadFrame(op.Slot)
	got := 1
	if op.Err == unix.EAGAIN {
		got = 0
	}
	return q.burst.Saw(1, got, len(op.Frame)) && !final(op.Err)
}

// readBurst runs one list of reads through the ring. It returns how many of ops it has
// filled, and whether reading on may find more frames.
func (q *Queue) readBurst(ops []vnet.ReadOp) (done int, more bool) {
	ring, err := q.fd.BeginReads()
	if err != nil {
		ops[0].Frame, ops[0].Err = nil, err
		return 1, false
	}
	asked := 0
	for i := range ops {
		if len(ops[i].Slot) < vnet.MinFrame {
			break
		}
		ring.Read(q.readable(ops[i].Slot))
		asked++
	}
	passed := q.meter.Passed()
	done, got, bytes := q.collect(ops, ring.Run(), passed)
	q.fd.EndReads()
	more = q.burst.Saw(asked, got, bytes)
	return done, more && !final(ops[done-1].Err) // if more is true, all reads had a result: done > 0
}

// collect fills ops with the results of the reads into their slots. It returns how many of
// ops it has filled, how many of these do not have unix.EAGAIN, and the length of their
// frames together in bytes. passed is what meter.Passed returned before the reads.
func (q *Queue) collect(ops []vnet.ReadOp, results []int32, passed uint64) (done, got, bytes int) {
	empty := false
	for i, res := range results {
		errno := unix.Errno(-min(res, 0))
		if empty = errno == unix.EAGAIN; empty || errno == unix.ECANCELED {
			// After EAGAIN a frame may have come for the next read. A read with ECANCELED
			// was not made.
			continue
		}
		op := &ops[i]
		op.Frame, op.Err = q.result(op.Slot, int(max(res, 0)), framefd.Bare(errno))
		bytes += len(op.Frame)
		got++
		if done != i {
			ops[done].Move(op)
		}
		done++
		if final(op.Err) {
			break
		}
	}
	q.meter.Took(got)
	if empty {
		q.meter.Emptied(passed)
		ops[done].Frame, ops[done].Err = nil, unix.EAGAIN
		done++
	}
	return done, got, bytes
}

// WriteFrames writes frames, from the first on, and returns how many of ops are done: all of
// them, or those before the first one for which the device is full at the moment. The Err of
// that one is unix.EAGAIN. Any other error, see WriteParts, concerns only its own frame.
//
// borrowed: ops and their frames, for the call.
func (q *Queue) WriteFrames(ops []vnet.WriteOp) int {
	ring := q.fd.Rings()
	for done := 0; done < len(ops); {
		if ring {
			if run := together(ops[done:]); run > 1 {
				n, ok := q.writeBurst(ops[done:][:run])
				done, ring = done+n, ok
				continue
			}
		}
		op := &ops[done]
		if op.Err = q.WriteParts(op.Head, op.Rest); op.Err == unix.EAGAIN {
			return done
		}
		done++
	}
	return len(ops)
}

// together returns how many of ops, from the first on, are worth writing in one system call.
func together(ops []vnet.WriteOp) int {
	n := 0
	for n < min(len(ops), framefd.MaxBurst) && len(ops[n].Head) >= vnet.MinFrame &&
		framefd.Small(len(ops[n].Head)+len(ops[n].Rest)) {
		n++
	}
	return n
}

// writeBurst writes through the ring as many of ops as the device has room for with
// certainty, and returns how many it has written. ok is false if the others should be written
// one by one: the device is full, or may soon be, or the kernel is short of memory.
func (q *Queue) writeBurst(ops []vnet.WriteOp) (done int, ok bool) {
	ring, err := q.fd.BeginWrites()
	if err != nil {
		return 0, false // writing one by one returns the same error
	}
	for room := q.fd.Room(); done < len(ops); done++ {
		op := &ops[done]
		if room -= framefd.Charge(len(op.Head) + len(op.Rest)); room < 0 {
			break
		}
		if len(op.Rest) == 0 {
			ring.Write(op.Head)
		} else {
			ring.Writev(op.Head, op.Rest)
		}
	}
	ok = done > 0
	for i, res := range ring.Run() {
		errno := unix.Errno(-min(res, 0))
		if errno == unix.EAGAIN || errno == unix.ECANCELED {
			done, ok = i, false
			break
		}
		ops[i].Err = framefd.Bare(errno)
	}
	q.fd.EndWrites()
	return done, ok
}

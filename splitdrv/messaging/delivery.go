package messaging

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// unpack accepts what one transfer has carried: a frame, or a pack of them.
func (r *receiver) unpack(data []byte) error {
	if r.c.cfg.NoPack || !protocol.IsPack(data) {
		return r.accept(data)
	}
	p, err := protocol.DecodePack(data)
	if err != nil {
		return r.violation(err, "a pack")
	}
	r.count.packs.Add(1)
	r.count.packed.Add(uint64(p.Left()))
	for p.Left() > 0 {
		frame, err := p.Next()
		if err != nil {
			return r.violation(err, "a pack")
		}
		if err := r.accept(frame); err != nil {
			return err
		}
	}
	return nil
}

// framesIn is how many frames one transfer says that it has carried.
func (r *receiver) framesIn(data []byte) int {
	if r.c.cfg.NoPack || !protocol.IsPack(data) {
		return 1
	}
	p, err := protocol.DecodePack(data)
	if err != nil {
		return 1
	}
	return p.Left()
}

// accept checks a frame and puts it among those to be written. The port reads it
// from the element itself, which the peer can still change unless the pool is a
// one-touch pool, so that the check here is for the peer's sake; the kernel
// checks what it copied.
func (r *receiver) accept(frame []byte) error {
	r.frames++
	r.bytes += uint64(len(frame))
	if err := vnet.Check(frame, int(r.c.mtu.Load())); err != nil {
		switch {
		case err == vnet.ErrMTU:
			// No violation: the MTU may have changed while the frame was on its way.
			r.count.overMTU.Add(1)
		case vnet.Breach(err):
			return r.violation(ErrFrame, "%v", err)
		default:
			// What netdevices can produce without anybody meaning harm, and a
			// sender should have dropped.
			r.count.malformed.Add(1)
		}
		return nil
	}
	r.writes = append(r.writes, vnet.WriteOp{Head: frame})
	if len(r.writes) < cap(r.writes) {
		return nil
	}
	return r.write()
}

// write hands the frames to the port, and waits while that is full. If the
// session ends meanwhile nothing more is written: later frames without those
// that the port had no room for would be a hole in the stream.
func (r *receiver) write() (err error) {
	r.unwritten = r.writes
	if !r.writeMore() {
		err = r.outwait()
		if n := len(r.unwritten); n > 0 && err == nil {
			r.count.dropped.Add(uint64(n))
			err = net.ErrClosed
		}
	}
	clear(r.writes)
	r.writes = r.writes[:0]
	return err
}

// writeMore hands over what the port takes, and reports whether it has taken
// everything.
func (r *receiver) writeMore() bool {
	n := r.writeFrames(r.unwritten)
	for i := range r.unwritten[:n] {
		if r.unwritten[i].Err != nil {
			// The device is down (EIO), its queue overflowed (ENOBUFS), or the
			// kernel does not like the frame (EINVAL): this frame is lost, as it
			// would be on a real card.
			r.count.dropped.Add(1)
		}
	}
	r.unwritten = r.unwritten[n:]
	return len(r.unwritten) == 0
}

// writable is writeMore for one who waits for room, and not for the end of a
// hold.
func (r *receiver) writable() bool {
	return r.c.stopped.Load() || r.writeMore() || (r.paced != nil && r.paced.WriteHold() > 0)
}

// writeFrames is WriteFrames of the port, which may not have it.
func (r *receiver) writeFrames(ops []vnet.WriteOp) int {
	if r.batches != nil {
		return r.batches.WriteFrames(ops)
	}
	for i := range ops {
		if ops[i].Err = r.port.WriteFrame(ops[i].Head); ops[i].Err == unix.EAGAIN {
			return i
		}
	}
	return len(ops)
}

// flush writes what was consumed and frees the elements; of one-touch pools it
// has those sealed that were gathered.
func (r *receiver) flush() error {
	if r.touches.gathered != nil {
		r.seal()
	}
	if len(r.writes) > 0 {
		if err := r.write(); err != nil {
			return err
		}
	}
	// Counted first: where nothing is consumed, everything is counted.
	r.count.bytes.Add(r.bytes)
	r.count.frames.Add(r.frames)
	r.frames, r.bytes = 0, 0
	for i := range r.consumed {
		r.consumed[i].pool.Loan.Release(r.consumed[i].elem)
	}
	r.consumed = r.consumed[:0]
	return nil
}

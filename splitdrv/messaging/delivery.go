package messaging

import (
	"net"
	"time"

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
	rest := r.writeSome(r.writes)
	for len(rest) > 0 && err == nil && !r.c.stopped.Load() {
		if err = r.waitForPort(); err == nil && !r.c.stopped.Load() {
			rest = r.writeSome(rest)
		}
	}
	if n := len(rest); n > 0 && err == nil {
		r.count.dropped.Add(uint64(n))
		err = net.ErrClosed
	}
	clear(r.writes)
	r.writes = r.writes[:0]
	return err
}

// writeSome hands over what the port takes, and returns the rest.
func (r *receiver) writeSome(ops []vnet.WriteOp) []vnet.WriteOp {
	n := r.port.WriteFrames(ops)
	for i := range ops[:n] {
		if ops[i].Err != nil {
			// The device is down (EIO), its queue overflowed (ENOBUFS), or the
			// kernel does not like the frame (EINVAL): this frame is lost, as it
			// would be on a real card.
			r.count.dropped.Add(1)
		}
	}
	return ops[n:]
}

// waitForPort waits until the port has room, or its hold may be over.
func (r *receiver) waitForPort() error {
	d := r.hold()
	if d <= 0 {
		r.count.portBusy.Add(1)
		_, err := r.full.Wait()
		return err
	}
	r.count.held.Add(1)
	_, err := r.held.WaitFor(d)
	r.w.woke()
	r.w.place() // it may take long
	return err
}

// hold is how long the port holds frames back, 0 if it is full. What the queue's
// event is raised for from now on may be about that; what it was raised for before
// is seen when there is nothing more to write.
func (r *receiver) hold() time.Duration {
	if r.paced == nil {
		return 0
	}
	r.queue.wake.Clear()
	return r.paced.WriteHold()
}

// flush writes what was consumed and frees the elements; of one-touch pools it
// has those sealed that were gathered.
func (r *receiver) flush() error {
	r.revoke()
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

package messaging

import (
	"net"
	"time"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/vnet"
)

// delivery is what a receiver has of its port: frames on their way there, in the
// elements that they were written to. It is the receiver's goroutine's.
type delivery struct {
	c       *shared
	w       *worker
	channel int
	wake    *epoll.Event // the queue's, which is raised when a hold changes
	count   *rxCounters
	path    *capture.Path

	port  Port
	paced PacedPort  // port, if it is one
	full  *epoll.Set // waits for a port that takes frames again
	held  *epoll.Set // for the end of a port's hold, or a change of it; nil if the port has none

	writes []vnet.WriteOp // frames that go to the port together
	frames uint64         // taken and not counted yet
	bytes  uint64
}

// begin makes the waiters.
func (d *delivery) begin(port Port) (err error) {
	d.port = port
	d.paced, _ = port.(PacedPort)
	if d.full, err = d.c.newWaiter(room(port)); err != nil || d.paced == nil {
		return err
	}
	d.held, err = d.c.newWaiter(epoll.Readable(d.wake.FD()))
	return err
}

// unpack accepts what one transfer has carried: a frame, or a pack of them.
func (d *delivery) unpack(data []byte) error {
	if d.c.cfg.NoPack || !protocol.IsPack(data) {
		return d.accept(data)
	}
	p, err := protocol.DecodePack(data)
	if err != nil {
		return channelViolation(d.channel, err, "a pack")
	}
	d.count.RxPacks.Add(1)
	d.count.RxPacked.Add(uint64(p.Left()))
	for p.Left() > 0 {
		frame, err := p.Next()
		if err != nil {
			return channelViolation(d.channel, err, "a pack")
		}
		if err := d.accept(frame); err != nil {
			return err
		}
	}
	return nil
}

// framesIn is how many frames one transfer says that it has carried.
func (d *delivery) framesIn(data []byte) int {
	if d.c.cfg.NoPack || !protocol.IsPack(data) {
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
func (d *delivery) accept(frame []byte) error {
	d.frames++
	d.bytes += uint64(len(frame))
	if err := vnet.Check(frame, int(d.c.mtu.Load())); err != nil {
		switch {
		case err == vnet.ErrMTU:
			// No violation: the MTU may have changed while the frame was on its way.
			d.count.RxOverMTU.Add(1)
		case vnet.Breach(err):
			return channelViolation(d.channel, ErrFrame, "%v", err)
		default:
			// What netdevices can produce without anybody meaning harm, and a
			// sender should have dropped.
			d.count.RxMalformed.Add(1)
		}
		return nil
	}
	d.writes = append(d.writes, vnet.WriteOp{Head: frame})
	if len(d.writes) < cap(d.writes) {
		return nil
	}
	return d.write()
}

// write hands the frames to the port, and waits while that is full. If the
// session ends meanwhile nothing more is written: later frames without those
// that the port had no room for would be a hole in the stream.
func (d *delivery) write() error {
	// Before anybody can answer: who has the answer to a frame finds it in the counters.
	d.count.RxBytes.Add(d.bytes)
	d.count.RxFrames.Add(d.frames)
	d.frames, d.bytes = 0, 0
	if len(d.writes) == 0 {
		return nil
	}
	d.path.Received(d.writes)
	err := d.writeAll(d.writes)
	clear(d.writes)
	d.writes = d.writes[:0]
	return err
}

func (d *delivery) writeAll(ops []vnet.WriteOp) error {
	for {
		if ops = d.writeSome(ops); len(ops) == 0 {
			return nil
		}
		if err := d.waitForPort(); err != nil {
			return err
		}
		if d.c.stopped.Load() {
			d.count.RxDropped.Add(uint64(len(ops)))
			return net.ErrClosed
		}
	}
}

// writeSome hands over what the port takes, and returns the rest.
func (d *delivery) writeSome(ops []vnet.WriteOp) []vnet.WriteOp {
	n := d.port.WriteFrames(ops)
	for i := range ops[:n] {
		if ops[i].Err != nil {
			// The device is down (EIO), its queue overflowed (ENOBUFS), or the
			// kernel does not like the frame (EINVAL): this frame is lost, as it
			// would be on a real card.
			d.count.RxDropped.Add(1)
		}
	}
	return ops[n:]
}

// waitForPort waits until the port has room, or its hold may be over.
func (d *delivery) waitForPort() error {
	hold := d.hold()
	if hold <= 0 {
		d.count.RxPortBusy.Add(1)
		return d.full.Wait()
	}
	d.count.RxThrottled.Add(1)
	err := d.held.WaitFor(hold)
	d.w.woke()
	d.w.bindThread() // it may take long
	return err
}

// hold is how long the port holds frames back, 0 if it is full. What the queue's
// event is raised for from now on may be about that; what it was raised for before
// is seen when there is nothing more to write.
func (d *delivery) hold() time.Duration {
	if d.paced == nil {
		return 0
	}
	d.wake.Clear()
	return d.paced.WriteHold()
}

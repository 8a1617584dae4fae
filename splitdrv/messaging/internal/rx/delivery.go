package rx

import (
	"net"
	"time"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/vnet"
)

// delivery passes a receiver's frames to its port, directly from the elements that the
// peer has written. Only the receiver's goroutine uses it.
type delivery struct {
	c       *core.Session
	w       *cq.Worker
	channel int
	wake    *epoll.Event // event of the receiver's queue, also raised when a hold changes
	count   *core.RxCount
	path    *capture.Path
	noPack  bool

	port  core.Port
	paced core.PacedPort // port, if it is one
	full  *epoll.Set     // waits until a full port has room
	held  *epoll.Set     // waits until a port's hold ends or changes; nil if the port has none

	writes []vnet.WriteOp // frames for the next call of WriteFrames
	frames uint64         // accepted and not yet counted
	bytes  uint64
}

func (d *delivery) begin(port core.Port) (err error) {
	d.port = port
	d.paced, _ = port.(core.PacedPort)
	if d.full, err = d.c.NewWaiter(core.Room(port)); err != nil || d.paced == nil {
		return err
	}
	d.held, err = d.c.NewWaiter(epoll.Readable(d.wake.FD()))
	return err
}

// unpack accepts the frames of one transfer, which has a single frame or a pack.
func (d *delivery) unpack(data []byte) error {
	if d.noPack || !protocol.IsPack(data) {
		return d.accept(data)
	}
	p, err := protocol.DecodePack(data)
	if err != nil {
		return core.ChannelViolation(d.channel, err, "a pack")
	}
	d.count.RxPacks.Add(1)
	d.count.RxPacked.Add(uint64(p.Left()))
	for p.Left() > 0 {
		frame, err := p.Next()
		if err != nil {
			return core.ChannelViolation(d.channel, err, "a pack")
		}
		if err := d.accept(frame); err != nil {
			return err
		}
	}
	return nil
}

// framesIn returns how many frames a transfer has, according to its header.
func (d *delivery) framesIn(data []byte) int {
	if d.noPack || !protocol.IsPack(data) {
		return 1
	}
	p, err := protocol.DecodePack(data)
	if err != nil {
		return 1
	}
	return p.Left()
}

// accept checks a frame and adds it to the next write. Unless transfers are sealed, the port reads the
// frame from the element, and the peer can change the element until then, unless the pool is a one-touch
// pool. So this check only detects peers that break the protocol; it does not protect the
// port, and the kernel checks the copy that it makes.
func (d *delivery) accept(frame []byte) error {
	d.frames++
	d.bytes += uint64(len(frame))
	if err := vnet.Check(frame, int(d.c.MTU.Load())); err != nil {
		switch {
		case err == vnet.ErrMTU:
			// Not a violation: the MTU may have changed while the frame was in flight.
			d.count.RxOverMTU.Add(1)
		case vnet.Breach(err):
			return core.ChannelViolation(d.channel, core.ErrFrame, "%v", err)
		default:
			// A frame that any netdevice can produce, and that the sender should have
			// dropped.
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

// write writes the frames to the port, and waits while the port is full. If the session
// ends while it waits, it writes nothing more, because later frames without the earlier
// ones would leave a gap in a flow.
func (d *delivery) write() error {
	// Count before writing: once an answer to a frame exists, the counters include it.
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
		if d.c.Stopped.Load() {
			d.count.RxDropped.Add(uint64(len(ops)))
			return net.ErrClosed
		}
	}
}

// writeSome writes as many frames as the port accepts, and returns the rest.
func (d *delivery) writeSome(ops []vnet.WriteOp) []vnet.WriteOp {
	n := d.port.WriteFrames(ops)
	for i := range ops[:n] {
		if ops[i].Err != nil {
			// The device is down (EIO), its queue is full (ENOBUFS), or the kernel rejects
			// the frame (EINVAL). The frame is lost, as on a physical card.
			d.count.RxDropped.Add(1)
		}
	}
	return ops[n:]
}

// waitForPort waits until the port has room, or until its hold ends or changes.
func (d *delivery) waitForPort() error {
	hold := d.hold()
	if hold <= 0 {
		d.count.RxPortBusy.Add(1)
		return d.full.Wait()
	}
	d.count.RxThrottled.Add(1)
	err := d.held.WaitFor(hold)
	d.w.Woke()
	d.w.BindThread() // the wait may have been long
	return err
}

// hold returns for how long the port will hold frames back, or 0 if it is full. It clears
// the queue's event first, so that a change of the hold from now on raises it again. Other
// events in the queue are not lost: the receiver reads the queue after it has written.
func (d *delivery) hold() time.Duration {
	if d.paced == nil {
		return 0
	}
	d.wake.Clear()
	return d.paced.WriteHold()
}

package messaging

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// receiver moves frames from the peer to a port, in a goroutine of its own.
type receiver struct {
	c    *Conn
	ch   *channel
	port Port
	kick *event // raised when an update that found no control send slot can be tried again

	comps [64]fabric.Completion
	recvs [64]fabric.RecvWR
	idle  *waiter // for completions, or a kick
	full  *waiter // for a port that takes frames again
	count rxCounters
}

func newReceiver(c *Conn, ch *channel) *receiver {
	r := &receiver{c: c, ch: ch}
	for i := range r.recvs {
		r.recvs[i].ID = uint64(protocol.PackWRID(protocol.WRDataRecv, uint8(ch.number), 0, 0))
	}
	return r
}

// run is the receiver's goroutine.
func (r *receiver) run() error {
	for !r.c.stopped.Load() {
		n, err := r.poll()
		if err != nil {
			return err
		}
		if n == 0 {
			if n, err = r.spin(); err != nil {
				return err
			}
		}
		if n == 0 {
			if err := r.sleep(); err != nil {
				return err
			}
			continue
		}
		if err := r.take(r.comps[:n]); err != nil {
			return err
		}
	}
	return nil
}

func (r *receiver) poll() (int, error) {
	n, err := r.ch.recvCQ.Poll(r.comps[:])
	if err != nil {
		return 0, fmt.Errorf("poll the receive queue of data channel %d: %w", r.ch.number, err)
	}
	return n, nil
}

// spin polls for Config.Spin more.
func (r *receiver) spin() (int, error) {
	if r.c.cfg.Spin == 0 {
		return 0, nil
	}
	for end := time.Now().Add(r.c.cfg.Spin); time.Now().Before(end); {
		if n, err := r.poll(); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// take handles one batch of completions.
func (r *receiver) take(comps []fabric.Completion) error {
	var frames, bytes uint64
	for i := range comps {
		c := &comps[i]
		if err := c.Err(); err != nil {
			return fmt.Errorf("receive on data channel %d: %w", r.ch.number, err)
		}
		if c.Op != fabric.OpRecvWriteImm {
			return r.violation(ErrDataSend, "a SEND of %d bytes", c.Len)
		}
		pool, elem, length := protocol.ImmData(c.Imm).Unpack()
		class := int(pool) - int(poolRef(r.ch.number, 0))
		if class < 0 || class >= len(r.ch.lent) {
			return r.violation(ErrPool, "pool %d", pool)
		}
		if uint32(length) != c.Len {
			return r.violation(ErrIndicatedLength, "%d bytes indicated, %d written", length, c.Len)
		}
		loan := r.ch.lent[class].loan
		// borrowed: the element is ours to read until Release.
		frame, err := loan.Consume(int(elem), int(length))
		if err != nil {
			return r.violation(err, "pool %d", pool)
		}
		if err := r.deliver(frame); err != nil {
			return err
		}
		loan.Release(int(elem))
		frames++
		bytes += uint64(length)
	}
	// The receives first: an element that goes back stands for a posted receive.
	if err := r.post(len(comps)); err != nil {
		return err
	}
	r.count.frames.Add(frames)
	r.count.bytes.Add(bytes)
	r.c.heard.Add(1)
	return r.giveBack()
}

// deliver checks a frame and hands it to the port. The port reads it from the
// element itself, which the peer can still change, so that the check here is
// for the peer's sake; the kernel checks what it copied.
func (r *receiver) deliver(frame []byte) error {
	switch err := vnet.Check(frame, int(r.c.mtu.Load())); err {
	case nil:
	case vnet.ErrMTU:
		// No violation: the MTU may have changed while the frame was on its way.
		r.count.overMTU.Add(1)
		return nil
	case vnet.ErrShort, vnet.ErrTooLong, vnet.ErrFlags, vnet.ErrCsum, vnet.ErrHdrLen:
		return r.violation(ErrFrame, "%v", err)
	default:
		// A super-frame that cannot be cut up, which a netdevice stacked high
		// enough can produce without meaning harm.
		r.count.dropped.Add(1)
		return nil
	}
	for {
		switch err := r.port.WriteFrame(frame); err {
		case nil:
			return nil
		case unix.EAGAIN:
			r.count.portBusy.Add(1)
			stopped, err := r.sleepForPort()
			if stopped || err != nil {
				return err
			}
		default:
			// The device is down (EIO), its queue overflowed (ENOBUFS), or the
			// kernel does not like the frame (EINVAL): this frame is lost, as it
			// would be on a real card.
			r.count.dropped.Add(1)
			return nil
		}
	}
}

// post posts n receives without memory.
func (r *receiver) post(n int) error {
	for n > 0 {
		k := min(n, len(r.recvs))
		if _, err := r.ch.qp.PostRecv(r.recvs[:k]); err != nil {
			return fmt.Errorf("post receives on data channel %d: %w", r.ch.number, err)
		}
		n -= k
	}
	return nil
}

// giveBack returns elements to the peer when a pool is due.
func (r *receiver) giveBack() error {
	for i := range r.ch.lent {
		if r.ch.lent[i].loan.Due() {
			sent, err := r.c.control.sendUpdate(r.ch)
			if err != nil {
				return err
			}
			if sent {
				r.count.updates.Add(1)
			}
			return nil
		}
	}
	return nil
}

// sleep arms the completion queue, polls once more and waits.
func (r *receiver) sleep() error {
	if err := r.ch.recvCQ.Arm(true); err != nil {
		return err
	}
	if n, err := r.poll(); n > 0 || err != nil {
		if err != nil {
			return err
		}
		return r.take(r.comps[:n])
	}
	if err := r.idle.wait(); err != nil {
		return err
	}
	r.count.wakeups.Add(1)
	if r.idle.ready(r.ch.recvCQ.FD()) != 0 {
		if _, err := r.ch.recvCQ.ReadEvent(); err != nil {
			return err
		}
	}
	if r.idle.ready(r.kick.fd) != 0 {
		r.kick.clear()
		return r.giveBack()
	}
	return nil
}

// open makes the waiters, now that the port is known.
func (r *receiver) open() (err error) {
	r.idle, err = r.c.newWaiter(interest{r.ch.recvCQ.FD(), unix.EPOLLIN}, interest{r.kick.fd, unix.EPOLLIN})
	if err != nil {
		return err
	}
	r.full, err = r.c.newWaiter(interest{writeFD(r.port), unix.EPOLLOUT})
	return err
}

// sleepForPort waits until the port takes frames again.
func (r *receiver) sleepForPort() (stopped bool, err error) {
	err = r.full.wait()
	return r.c.stopped.Load(), err
}

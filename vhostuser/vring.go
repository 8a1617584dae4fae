package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// vring is one of the device's rings, with what the front end has said of it. mu is held
// for each burst, and to change anything; what is only about starting the ring is the
// connection's.
type vring struct {
	number int
	d      *Device

	size    uint32
	addr    *vringAddr
	start   uint32
	kick    int // -1 for none
	enabled bool
	// interrupted is set while the ring waits for memory, which it had: that may be removed
	// and added piece by piece.
	interrupted bool

	mu     sync.Mutex
	ring   ring        // nil: it is stopped
	epoch  uint32      // of ring: what was lent from an earlier one is not given back to it
	held   []heldChain // taken, and not put, as the first one is lent; in order
	first  uint32      // number of the first one of held
	header int         // bytes of a frame's header
	takes  vnet.Offloads
	call   int  // -1: the driver wants none
	armed  bool // the driver is to kick
	raw    [12]byte
	finish finisher

	running atomic.Bool // it is not stopped, and enabled
	count   struct{ frames, bytes, dropped, calls atomic.Uint64 }
}

// transmits reports whether the driver transmits by the ring, which has the odd numbers.
func (v *vring) transmits() bool { return v.number%2 == 1 }

// take takes a descriptor of the front end's for an event, and closes the one before.
func takeEvent(old *int, fd int) error {
	if *old >= 0 {
		_ = unix.Close(*old)
	}
	*old = -1
	if fd < 0 {
		return nil
	}
	// Anything else could be a descriptor that blocks, or is never done with.
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err == nil && !strings.Contains(name, "[eventfd]") {
		err = fmt.Errorf("%w: %s instead of an eventfd for a ring", ErrFrontEnd, name)
	}
	if err == nil {
		err = os.NewSyscallError("fcntl", unix.SetNonblock(fd, true))
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	*old = fd
	return nil
}

// begin starts the ring if everything is there that it takes. The caller holds mu.
func (v *vring) begin(m *memory, f features) (err error) {
	if v.ring != nil || v.kick < 0 || v.addr == nil || v.size == 0 || len(m.regions) == 0 {
		return nil
	}
	if v.interrupted && !m.holds(v.addr) {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			at, ok := p.(fault)
			if !ok || !m.has(at.Addr()) {
				panic(p)
			}
			v.ring, err = nil, errTruncated
		}
	}()
	c := newCommon(m, v.size, f, !v.transmits())
	if f.has(featPacked) {
		v.ring, err = ringOf(newPacked(c, v.addr, v.start))
	} else {
		v.ring, err = ringOf(newSplit(c, v.addr))
	}
	if err != nil {
		return err
	}
	v.header, v.takes, v.armed, v.interrupted = f.header(), f.takes(), false, false
	v.epoch++
	v.held, v.first = v.held[:0], 0
	v.arm(true)
	return nil
}

// ringOf makes an interface of what a constructor returns.
func ringOf[R ring](r R, err error) (ring, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// stop stops the ring, and keeps where it was. The caller holds mu.
func (v *vring) stop() {
	if v.ring != nil {
		v.start = v.ring.position()
		v.ring = nil
	}
}

// interrupt stops the ring until the memory is there that it needs: it begins again where
// it was. The caller holds mu.
func (v *vring) interrupt() {
	if v.ring != nil {
		v.stop()
		v.interrupted = true
	}
}

// fault is what an access to memory that is not there panics with, after
// debug.SetPanicOnFault.
type fault interface {
	error
	Addr() uintptr
}

var errTruncated = fmt.Errorf("%w: a region of memory is gone: its file was truncated", ErrFrontEnd)

// leave ends a burst. It is deferred, with what SetPanicOnFault has returned, and catches
// the fault of a file that was truncated.
func (v *vring) leave(before bool) {
	p := recover()
	debug.SetPanicOnFault(before)
	if p != nil {
		if f, ok := p.(fault); !ok || v.ring == nil || !v.ring.base().mem.has(f.Addr()) {
			v.mu.Unlock()
			panic(p)
		}
		v.fail(errTruncated)
	}
	v.mu.Unlock()
}

// fail stops the ring, because of err, and has the connection end.
func (v *vring) fail(err error) {
	v.ring = nil
	v.running.Store(false)
	v.d.fail(fmt.Errorf("ring %d: %w", v.number, err))
}

// publish gives back what was put, and calls the driver if it wants that.
func (v *vring) publish() {
	if v.ring != nil && v.ring.publish() && v.call >= 0 {
		v.count.calls.Add(1)
		v.raiseCall()
	}
}

// one is what an eventfd is raised by.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// raiseCall calls the driver. The front end has the descriptor, too, and can make it block:
// so the runtime is told of the system call.
func (v *vring) raiseCall() { _, _ = unix.Write(v.call, one) }

// arm says whether the driver is to kick.
func (v *vring) arm(on bool) {
	if v.armed != on {
		v.armed = on
		v.ring.arm(on)
	}
}

// again reports whether another look is due before somebody sleeps: what was there has
// been looked at after the driver was told from where on to kick. It is told anew then.
func (v *vring) again(sleep bool) bool {
	if !sleep || v.ring.armed() {
		return false
	}
	v.ring.arm(true)
	return true
}

// read reads frames that the driver transmits, and returns how many of ops it has filled. If
// there are none it has the driver kick when there are, if it is to sleep. to, which may
// be nil, are whom long frames are lent.
func (v *vring) read(ops []vnet.ReadOp, to *borrower, sleep bool) (n int) {
	v.mu.Lock()
	defer v.leave(debug.SetPanicOnFault(true))
	if v.ring == nil || !v.running.Load() {
		return 0
	}
	if sleep {
		v.arm(true)
	}
	bytes, allowed := uint64(0), v.d.allowed()
	for n < len(ops) && len(v.held) < int(v.size) { // more than there are does not happen to an honest driver
		if v.finish.more() {
			v.finish.next(&ops[n])
			n++
			continue
		}
		there, err := v.ring.next()
		lent := false
		if err == nil && there && to != nil {
			lent, err = v.lend(&ops[n], &to.lent[n], to.keys, allowed)
		}
		if err == nil && there && !lent {
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
		v.count.frames.Add(uint64(n))
		v.count.bytes.Add(bytes)
	}
	return n
}

// load copies the frame of a chain. The error is the driver's, that of the frame is the
// operation's.
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

// wants is what a frame leaves to who sends it on.
func wants(head []byte) (o vnet.Offloads) {
	if head[0]&vnet.FlagNeedsCsum != 0 {
		o |= vnet.CSUM
	}
	switch head[1] &^ vnet.GSOECN {
	case vnet.GSOTCPv4:
		o |= vnet.TSO4
	case vnet.GSOTCPv6:
		o |= vnet.TSO6
	case vnet.GSOUDPL4:
		o |= vnet.USO
	}
	if head[1]&vnet.GSOECN != 0 {
		o |= vnet.TSOECN
	}
	return o
}

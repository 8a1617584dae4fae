package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// shared is the state that a device and its rings share.
type shared struct {
	granted  atomic.Uint32 // offloads of the I/O unit
	lendFrom uint64        // smallest size of a lent frame; smaller in tests
	recalled atomic.Bool   // no frames are lent
	failed   chan error    // of capacity one: the reason to end the connection
}

func (s *shared) allowed() vnet.Offloads { return vnet.Offloads(s.granted.Load()) }

// fail ends the connection with that error.
func (s *shared) fail(err error) {
	select {
	case s.failed <- err:
	default: // there is an earlier error
	}
}

// vring is a ring of the device with its configuration by the front end. mu is held for each burst, and
// for each change. Only the goroutine of the connection changes the fields before mu.
type vring struct {
	number int
	shared *shared

	size    uint32
	addr    *vringAddr
	start   uint32
	kick    int // -1 for none
	enabled bool
	idle    bool // it was enabled and is disabled
	// interrupted is set while the ring is stopped for a change of memory. Regions may be removed
	// and added one by one.
	interrupted bool

	mu     sync.Mutex
	ring   ring        // nil: the ring is stopped
	epoch  uint32      // number of the start; loans of earlier starts are not returned
	held   []heldChain // chains taken and not returned, in order, because the first one is lent
	first  uint32      // number of the first chain in held
	header int         // size of a frame's header in bytes
	takes  vnet.Offloads
	call   int  // -1: the driver wants no calls
	armed  bool // the driver has to kick
	raw    [12]byte
	finish finisher
	most   int // largest number of chains found available at a time

	running  atomic.Bool              // the ring is started and enabled
	discards atomic.Bool              // the ring is started and idle: transmitted frames are discarded
	writers  atomic.Pointer[[]*waker] // wakers of the queues that write to the ring
	count    struct{ frames, bytes, dropped, calls atomic.Uint64 }
}

// transmits reports whether the driver transmits by the ring, which has the odd numbers.
func (v *vring) transmits() bool { return v.number%2 == 1 }

// takeEvent replaces the descriptor of an event by one of the front end, and closes the old one. If fd
// is no eventfd, it is closed and the old one stays.
func takeEvent(old *int, fd int) error {
	if fd >= 0 {
		// Another kind of descriptor could block.
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err == nil && name != "anon_inode:[eventfd]" { // the name of a file can end in the same way
			err = fmt.Errorf("%w: %q instead of an eventfd for a ring", ErrFrontEnd, name)
		}
		if err == nil {
			err = os.NewSyscallError("fcntl", unix.SetNonblock(fd, true))
		}
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
	}
	if *old >= 0 {
		_ = unix.Close(*old)
	}
	*old = fd
	return nil
}

// begin starts the ring if it is completely configured. mu is held.
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
		v.ring, err = newPacked(c, v.addr, v.start)
	} else {
		v.ring, err = newSplit(c, v.addr)
	}
	if err != nil {
		v.ring = nil
		return err
	}
	v.header, v.takes, v.armed, v.interrupted = f.header(), f.takes(), false, false
	v.epoch++
	v.held, v.first, v.most = v.held[:0], 0, 0
	v.arm(true)
	return nil
}

// started reports whether the ring is started. It may be disabled.
func (v *vring) started() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ring != nil
}

// stop stops the ring, and records its position. mu is held.
func (v *vring) stop() {
	if v.ring != nil {
		v.start = v.ring.position()
		v.ring = nil
	}
}

// interrupt stops the ring until its memory exists again. It then continues at its position. mu is
// held.
func (v *vring) interrupt() {
	if v.ring != nil {
		v.stop()
		v.interrupted = true
	}
}

// forget stops the ring and resets its configuration. mu is held.
func (v *vring) forget() error {
	v.ring, v.addr, v.size, v.start, v.enabled, v.interrupted = nil, nil, 0, 0, false, false
	v.idle = false
	v.finish.at, v.finish.segments = 0, 0
	return errors.Join(takeEvent(&v.kick, -1), takeEvent(&v.call, -1))
}

// fault is the value of the panic of an access to memory that does not exist, with
// debug.SetPanicOnFault.
type fault interface {
	error
	Addr() uintptr
}

var errTruncated = fmt.Errorf("%w: a region of memory is gone: its file was truncated", ErrFrontEnd)

// leave ends a burst. It is deferred, with the result of SetPanicOnFault, and recovers from the fault
// of a truncated file.
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

// fail stops the ring, and ends the connection with err.
func (v *vring) fail(err error) {
	v.ring = nil
	v.running.Store(false)
	v.shared.fail(fmt.Errorf("ring %d: %w", v.number, err))
}

// publish returns the chains of put to the driver, and calls the driver if it wants a call.
func (v *vring) publish() {
	if v.ring != nil && v.ring.publish() && v.call >= 0 {
		v.count.calls.Add(1)
		v.raiseCall()
	}
}

// one is the data of a write to an eventfd.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// raiseCall calls the driver. The system call is announced to the runtime, because the front end can
// make the descriptor block.
func (v *vring) raiseCall() { _, _ = unix.Write(v.call, one) }

// arm tells the driver whether to kick.
func (v *vring) arm(on bool) {
	if v.armed != on {
		v.armed = on
		v.ring.arm(on)
	}
}

// unarm is arm(false) for a ring that several queues may write to. It wakes those that sleep until a
// kick. They check the ring again, and arm it.
func (v *vring) unarm() {
	if !v.armed {
		return
	}
	v.arm(false)
	if wakers := v.writers.Load(); wakers != nil {
		for _, w := range *wakers {
			w.raise()
		}
	}
}

// again reports whether the ring has to be checked again before the caller sleeps, because the ring
// has advanced since it was armed. It is armed again then.
func (v *vring) again(sleep bool) bool {
	if !sleep || v.ring.armed() {
		return false
	}
	v.ring.arm(true)
	return true
}

// heldChain is a chain that is lent, or is behind a lent chain in its ring. Chains are returned in
// order, so that another process can find the chains that were not returned (newSplit).
type heldChain struct {
	used
	done bool
}

// hold returns the last chain of next at once, if it is done and no chain before it is held. Otherwise
// it holds the chain.
func (v *vring) hold(done bool) {
	c := &v.ring.base().chain
	u := used{id: c.id, slots: c.slots}
	if done && len(v.held) == 0 {
		v.ring.put(u)
		return
	}
	v.held = append(v.held, heldChain{u, done})
}

// giveBack returns lent chains to the driver, unless the ring has been started again since.
func (v *vring) giveBack(loans []vnet.Loan) {
	v.mu.Lock()
	defer v.leave(debug.SetPanicOnFault(true))
	if v.ring == nil {
		return
	}
	for i := range loans {
		if l := &loans[i]; l.Epoch == v.epoch {
			v.held[l.Chain-v.first].done = true
		}
	}
	n := 0
	for ; n < len(v.held) && v.held[n].done; n++ {
		v.ring.put(v.held[n].used)
	}
	v.held = v.held[:copy(v.held, v.held[n:])]
	v.first += uint32(n)
	v.publish()
}

// finisher carries out offloads of frames in software, if the driver that receives the frame, or the
// I/O unit, does not support them. at and segments are the progress of a frame that the driver has
// transmitted, or will receive: the segments before at have been read, or written.
type finisher struct {
	vnet.Finisher
	at, segments int
}

// begin begins to segment the driver's frame in op.
func (f *finisher) begin(op *vnet.ReadOp) {
	f.at, f.segments = 0, 0
	frame, err := vnet.Outgoing(op.Frame)
	if err == nil {
		f.segments, err = f.Begin(frame, nil)
	}
	if err != nil {
		op.Err = vnet.ErrInvalid
	}
	op.Frame = nil
}

// more reports whether segments remain to be read, or written.
func (f *finisher) more() bool { return f.at < f.segments }

// next reads the next segment.
func (f *finisher) next(op *vnet.ReadOp) {
	segment := f.Segment(f.at)
	f.at++
	op.Frame, op.Err = nil, vnet.ErrTooLong
	if len(segment) <= len(op.Slot) {
		op.Frame, op.Err = op.Slot[:copy(op.Slot, segment)], nil
	}
}

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

// shared is what the rings of a device have in common with it.
type shared struct {
	granted  atomic.Uint32 // offloads that others take over
	lendFrom uint64        // bytes that a frame has which is lent; tests have shorter ones be lent
	recalled atomic.Bool   // nothing is lent
	failed   chan error    // of capacity one: why the connection is to end
}

func (s *shared) allowed() vnet.Offloads { return vnet.Offloads(s.granted.Load()) }

// fail ends the connection for that reason.
func (s *shared) fail(err error) {
	select {
	case s.failed <- err:
	default: // there was one before
	}
}

// vring is one of the device's rings, with what the front end has said of it. mu is held
// for each burst, and to change anything; what is only about starting the ring is the
// connection's.
type vring struct {
	number int
	shared *shared

	size    uint32
	addr    *vringAddr
	start   uint32
	kick    int // -1 for none
	enabled bool
	idle    bool // it was enabled, and is not
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
	most   int // chains that were found available at once, as far as somebody has counted

	running  atomic.Bool              // it is not stopped, and enabled
	discards atomic.Bool              // it is not stopped, and idle: what the driver transmits is given back, and lost
	writers  atomic.Pointer[[]*waker] // of the queues that write to it; nil: of none so far
	count    struct{ frames, bytes, dropped, calls atomic.Uint64 }
}

// transmits reports whether the driver transmits by the ring, which has the odd numbers.
func (v *vring) transmits() bool { return v.number%2 == 1 }

// takeEvent takes a descriptor of the front end's for an event, and closes the one before.
// One that is none is closed, and the one before stays.
func takeEvent(old *int, fd int) error {
	if fd >= 0 {
		// Anything else could be a descriptor that blocks, or is never done with.
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err == nil && name != "anon_inode:[eventfd]" { // a file's name can end alike
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
	v.held, v.first, v.most = v.held[:0], 0, 0
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

// started reports whether the ring is used, if only when it will be enabled.
func (v *vring) started() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ring != nil
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

// forget makes the ring one of which nothing was said. The caller holds mu.
func (v *vring) forget() error {
	v.ring, v.addr, v.size, v.start, v.enabled, v.interrupted = nil, nil, 0, 0, false, false
	v.idle = false
	v.finish.at, v.finish.segments = 0, 0
	return errors.Join(takeEvent(&v.kick, -1), takeEvent(&v.call, -1))
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
	v.shared.fail(fmt.Errorf("ring %d: %w", v.number, err))
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

// unarm is arm(false) for a ring that more than one may write to: whoever sleeps until the
// driver kicks looks again, and arms it.
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

// again reports whether another look is due before somebody sleeps: what was there has
// been looked at after the driver was told from where on to kick. It is told anew then.
func (v *vring) again(sleep bool) bool {
	if !sleep || v.ring.armed() {
		return false
	}
	v.ring.arm(true)
	return true
}

// heldChain is one that is lent, or comes behind one in its ring: chains are given back in
// order, so that another process finds by what was given back which ones were not
// (newSplit).
type heldChain struct {
	used
	done bool
}

// hold has the chain that was taken last be given back, at once if it is done with and
// nothing before it is held.
func (v *vring) hold(done bool) {
	c := &v.ring.base().chain
	u := used{id: c.id, slots: c.slots}
	if done && len(v.held) == 0 {
		v.ring.put(u)
		return
	}
	v.held = append(v.held, heldChain{u, done})
}

// giveBack gives chains back to the driver that were lent, unless the ring is another one
// by now.
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

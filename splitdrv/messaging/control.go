package messaging

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
)

// control is the control channel: channel 0, with its own completion queue and
// a handler thread, so that credits never wait behind data.
type control struct {
	c        *Conn
	w        *worker
	qp       fabric.QP
	cq       fabric.CQ // of both directions
	sendReg  fabric.Region
	recvReg  fabric.Region
	sendMem  []byte
	recvMem  []byte
	receives int

	mu         sync.Mutex // guards the send queue, the free slots and what follows
	room       sync.Cond  // a slot came free, or the session ended
	free       []uint16   // send slots
	out        []uint16   // those of messages on their way, in order, in the ring behind first
	first      int
	nOut       int
	unsignaled int              // messages since the last one that asked for a completion
	sendWR     [1]fabric.SendWR // here, because one on the stack would be allocated
	blocked    []*receiver
	closed     bool

	comps    [16]fabric.Completion
	recvWR   [1]fabric.RecvWR
	scratch  [protocol.MaxControlSize]byte // the handler's copy of the message in hand
	events   []rxEvent                     // the handler's, made of an indication
	sent     atomic.Uint64
	received atomic.Uint64
	wanted   atomic.Uint64 // looks at the completion queue: see look
	looked   atomic.Uint64 // the latest of them that there was
	told     chan struct{} // that there was one; of capacity one
	idle     *epoll.Set
	notice   notice
}

// newControl makes the control channel with room for sends messages out and
// receives in, and posts the receives.
func (c *Conn) newControl(sends, receives int) (k *control, err error) {
	k = &control{c: c, receives: receives, told: make(chan struct{}, 1)}
	k.room.L = &k.mu
	wake, err := c.newEvent()
	if err != nil {
		return nil, err
	}
	k.w = c.handlers.newWorker(0, RoleControl, wake)
	arena, err := c.memory.get((sends+receives)*protocol.MaxControlSize, true)
	if err != nil {
		return nil, err
	}
	mem := arena.Bytes()
	k.sendMem = mem[:sends*protocol.MaxControlSize]
	k.recvMem = mem[len(k.sendMem):][:receives*protocol.MaxControlSize]
	if k.sendReg, err = c.domain.Register(k.sendMem, 0); err != nil {
		return nil, fmt.Errorf("register the control channel's send buffers: %w", err)
	}
	if k.recvReg, err = c.domain.Register(k.recvMem, fabric.LocalWrite); err != nil {
		return nil, fmt.Errorf("register the control channel's receive buffers: %w", err)
	}
	if k.cq, err = c.domain.NewCQ(sends+receives+1, c.handlers.vector(0)); err != nil {
		return nil, err
	}
	k.notice = notice{cq: k.cq}
	k.qp, err = c.domain.NewQP(fabric.QPConfig{
		Transport: fabric.RC, SendCQ: k.cq, RecvCQ: k.cq,
		TrafficClass: c.cfg.TrafficClass, ServiceLevel: c.cfg.ServiceLevel,
		MaxSend: sends, MaxRecv: receives,
	})
	if err != nil {
		return nil, err
	}
	k.out = make([]uint16, sends)
	for i := range sends {
		k.free = append(k.free, uint16(i))
	}
	for i := range receives {
		if err := k.postRecv(uint16(i)); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *control) recvSlot(i uint16) []byte {
	off := int(i) * protocol.MaxControlSize
	return k.recvMem[off : off+protocol.MaxControlSize]
}

func (k *control) sendSlot(i uint16) []byte {
	off := int(i) * protocol.MaxControlSize
	return k.sendMem[off : off+protocol.MaxControlSize]
}

func (k *control) postRecv(i uint16) error {
	k.recvWR[0] = fabric.RecvWR{
		ID:   uint64(protocol.PackWRID(protocol.WRControlRecv, 0, i, 0)),
		Addr: address(k.recvSlot(i)), Len: protocol.MaxControlSize, LKey: k.recvReg.LKey(),
	}
	if _, err := k.qp.PostRecv(k.recvWR[:]); err != nil {
		return fmt.Errorf("post a receive on the control channel: %w", err)
	}
	return nil
}

// run is the control handler's goroutine.
func (k *control) run() (err error) {
	if end := k.idle.Run(func() (ended bool) {
		ended, err = k.work()
		return ended
	}); err == nil {
		err = end
	}
	return err
}

// work goes on until there is nothing to do, or the session has ended. It is called
// again when something has happened meanwhile.
func (k *control) work() (ended bool, err error) {
	k.w.woke()
	for armed := false; !k.c.stopped.Load(); {
		n, err := k.poll()
		if n == 0 && err == nil {
			n, err = k.spin()
		}
		switch {
		case err != nil:
			return true, err
		case n > 0:
			k.w.spend(n)
			armed = false
		case armed:
			return false, nil
		default:
			// And then once more: what had completed before raises no event.
			k.w.wake.Clear() // before the look at what it is raised for
			k.w.place()
			if err := k.notice.arm(); err != nil {
				return true, err
			}
			armed = true
		}
	}
	return true, nil
}

// spin polls for as long as the handler says.
func (k *control) spin() (int, error) {
	spin := time.Duration(k.w.spin.Load())
	if spin == 0 {
		return 0, nil
	}
	for end := time.Now().Add(spin); time.Now().Before(end) && !k.c.stopped.Load(); {
		if n, err := k.poll(); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// poll handles one batch of completions and returns how many there were.
func (k *control) poll() (int, error) {
	wanted := k.wanted.Load()
	n, err := k.cq.Poll(k.comps[:])
	if err != nil {
		return 0, fmt.Errorf("poll the control channel: %w", err)
	}
	k.w.took(n)
	for i := range k.comps[:n] {
		c := &k.comps[i]
		kind, _, index, _ := protocol.WRID(c.ID).Unpack()
		if err := c.Err(); err != nil {
			return 0, fmt.Errorf("%v on the control channel: %w", kind, err)
		}
		switch kind {
		case protocol.WRControlSend:
			k.release(index)
		case protocol.WRControlRecv:
			if err := k.receive(index, c); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("the control channel completed a %v", protocol.WRID(c.ID))
		}
	}
	if n < len(k.comps) && wanted != k.looked.Load() {
		k.looked.Store(wanted)
		select {
		case k.told <- struct{}{}:
		default:
		}
	}
	return n, nil
}

// look has the handler look whether anything has come, and returns the number of
// that look: once looked has reached it, everything has been handled that had
// come before.
func (k *control) look() uint64 {
	n := k.wanted.Add(1)
	k.w.wake.Set()
	return n
}

// receive handles one message. Its receive is posted again before it takes
// effect: that is what bounds the updates on their way (package bufpool), and
// why the message is copied first.
func (k *control) receive(index uint16, c *fabric.Completion) error {
	if c.Op != fabric.OpRecv {
		return controlViolation(ErrUnexpected, "an RDMA write with immediate data %#x", c.Imm)
	}
	msg := k.scratch[:copy(k.scratch[:], k.recvSlot(index)[:c.Len])]
	if err := k.postRecv(index); err != nil {
		return err
	}
	k.received.Add(1)
	k.c.heard.Add(1)
	if err := k.c.dispatch(msg); err != nil {
		return err
	}
	return nil
}

// signalEvery is how many messages there are to one that asks for a completion.
// Each wakes the handler, whom the others would wake in vain.
const signalEvery = 8

// release frees the send slots of a message that has been delivered and of all
// before it, and lets those go on that had to wait for one.
func (k *control) release(slot uint16) {
	k.mu.Lock()
	for done := false; !done && k.nOut > 0; {
		oldest := k.out[k.first]
		k.first = (k.first + 1) % len(k.out)
		k.nOut--
		k.free = append(k.free, oldest)
		done = oldest == slot
	}
	blocked := k.blocked
	k.blocked = nil
	k.mu.Unlock()
	k.room.Signal()
	for _, r := range blocked {
		r.unblocked.Store(true)
		r.queue.wake.Set()
	}
}

// close wakes those who wait for a slot. Nothing is sent from now on.
func (k *control) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.room.Broadcast()
}

// send sends one message, built by build in registered memory, and waits for a
// free slot if there is none. It must not be called by the handler, which is
// the one who frees slots. build, which runs with the lock held, may find that
// there is nothing to send, and returns nil.
func (k *control) send(build func(dst []byte) []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.waitForSlot(); err != nil {
		return err
	}
	slot := k.take()
	msg := build(k.sendSlot(slot)[:0])
	if msg == nil {
		k.free = append(k.free, slot)
		k.room.Signal()
		return nil
	}
	return k.post(slot, msg)
}

// waitForSlot waits until there is a free send slot. The caller holds the lock.
func (k *control) waitForSlot() error {
	for len(k.free) == 0 && !k.closed {
		k.room.Wait()
	}
	if k.closed {
		return net.ErrClosed
	}
	return nil
}

// sendUpdate returns the free elements of the receiver's pools that are due,
// or of all if that is urgent, and reports whether there was a slot to send it
// from. If not, the receiver is woken when there is one. protocol.OtherControl
// slots are left for other messages.
func (k *control) sendUpdate(r *receiver) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false, nil
	}
	if len(k.free) <= protocol.OtherControl {
		if !slices.Contains(k.blocked, r) {
			k.blocked = append(k.blocked, r)
		}
		return false, nil
	}
	return true, k.postUpdate(r)
}

// sendUpdateWaiting is sendUpdate for one that cannot be put off.
func (k *control) sendUpdateWaiting(r *receiver) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.waitForSlot(); err != nil {
		return err
	}
	return k.postUpdate(r)
}

// postUpdate builds and posts the next update, if there is anything to return. The
// caller holds the lock and has seen a free slot.
func (k *control) postUpdate(r *receiver) error {
	var some [MaxPools]protocol.PoolReturn
	pools := *r.local.Load()
	returns := r.returns.Next(pools, some[:0])
	if len(returns) == 0 {
		return nil
	}
	slot := k.take()
	if err := k.post(slot, protocol.AppendBufferRecvPoolUpdate(k.sendSlot(slot)[:0], 0, returns...)); err != nil {
		return err
	}
	r.returns.Sent(pools, returns)
	return nil
}

// sendIndicate tells the peer of transfers on one data channel that have
// completed. Called by the sender, of which it records in which message an
// element was named.
func (k *control) sendIndicate(s *sender, n int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.waitForSlot(); err != nil {
		return err
	}
	slot := k.take()
	return k.post(slot, protocol.AppendBufferRDMAIndicate(k.sendSlot(slot)[:0], 0, s.indications.number(n)...))
}

// take takes a free send slot. The caller holds the lock and has seen one.
func (k *control) take() uint16 {
	slot := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	return slot
}

// post posts the message that was built in a slot. The caller holds the lock.
func (k *control) post(slot uint16, msg []byte) error {
	k.sendWR[0] = fabric.SendWR{
		ID:   uint64(protocol.PackWRID(protocol.WRControlSend, 0, slot, 0)),
		Addr: address(msg), Len: uint32(len(msg)), LKey: k.sendReg.LKey(),
		Op: fabric.OpSend, Flags: fabric.Solicited,
	}
	if k.unsignaled++; k.unsignaled >= signalEvery {
		k.unsignaled = 0
		k.sendWR[0].Flags |= fabric.Signaled
	}
	k.out[(k.first+k.nOut)%len(k.out)] = slot
	k.nOut++
	if _, err := k.qp.PostSend(k.sendWR[:]); err != nil {
		return fmt.Errorf("send on the control channel: %w", err)
	}
	k.sent.Add(1)
	return nil
}

// address is the virtual address of b's first byte, for a work request. b lies
// in an arena, which does not move.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

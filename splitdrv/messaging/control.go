package messaging

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
)

// control is the control channel: channel 0, with its own completion queue and
// a handler thread, so that credits never wait behind data.
type control struct {
	controlSends
	c            *shared
	handle       func(msg []byte) error // a message
	w            *worker
	cq           fabric.CQ // of both directions
	idle         *epoll.Set
	notification notification
	comps        [16]fabric.Completion

	recvReg  fabric.Region
	recvMem  []byte
	recvWR   [1]fabric.RecvWR
	scratch  [protocol.MaxControlSize]byte // the handler's copy of the message in hand
	polling  sync.Mutex                    // held in a step
	polled   atomic.Bool                   // the data channels' workers do it, with Config.Poll
	received atomic.Uint64
	wanted   atomic.Uint64 // looks at the completion queue: see look
	looked   atomic.Uint64 // the latest of them that there was
	lookDone chan struct{} // that there was one; of capacity one
}

// newControl makes the control channel with room for sends messages out and
// receives in, and posts the receives.
func newControl(c *shared, sends, receives int, handle func(msg []byte) error) (k *control, err error) {
	k = &control{c: c, handle: handle, lookDone: make(chan struct{}, 1)}
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
	sendMem := mem[:sends*protocol.MaxControlSize]
	k.recvMem = mem[len(sendMem):][:receives*protocol.MaxControlSize]
	sendReg, err := c.domain.Register(sendMem, 0)
	if err != nil {
		return nil, fmt.Errorf("register the control channel's send buffers: %w", err)
	}
	if k.recvReg, err = c.domain.Register(k.recvMem, fabric.LocalWrite); err != nil {
		return nil, fmt.Errorf("register the control channel's receive buffers: %w", err)
	}
	if k.cq, err = c.domain.NewCQ(sends+receives+1, c.handlers.vector(0)); err != nil {
		return nil, err
	}
	k.notification = notification{cq: k.cq}
	qp, err := c.domain.NewQP(fabric.QPConfig{
		Transport: fabric.RC, SendCQ: k.cq, RecvCQ: k.cq,
		TrafficClass: c.cfg.TrafficClass, ServiceLevel: c.cfg.ServiceLevel,
		MaxSend: sends, MaxRecv: receives,
	})
	if err != nil {
		return nil, err
	}
	k.init(qp, sendReg, sendMem, sends)
	if c.cfg.Poll {
		k.progress = k.poll
	}
	for i := range receives {
		if err := k.postRecv(uint16(i)); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *control) postRecv(i uint16) error {
	k.recvWR[0] = fabric.RecvWR{
		ID:   uint64(protocol.PackWRID(protocol.WRControlRecv, 0, i, 0)),
		Addr: address(controlSlot(k.recvMem, i)), Len: protocol.MaxControlSize, LKey: k.recvReg.LKey(),
	}
	if _, err := k.qp.PostRecv(k.recvWR[:]); err != nil {
		return fmt.Errorf("post a receive on the control channel: %w", err)
	}
	return nil
}

// run is the control handler's goroutine.
func (k *control) run() error {
	return k.idle.Run(func() (ended bool, err error) {
		k.w.woke()
		if k.polled.Load() {
			k.w.wake.Clear()
			k.w.bindThread()
			// For who wants a look: they may all wait for room in their ports.
			return k.c.stopped.Load(), k.poll()
		}
		return k.w.untilIdle(&k.notification, &k.c.stopped, k.step)
	})
}

// step is one round of the handler's goroutine.
func (k *control) step() (bool, error) {
	k.polling.Lock()
	n, err := k.handleBatch()
	k.polling.Unlock()
	if n > 0 && err == nil {
		k.w.spend(n)
	}
	return n > 0, err
}

// poll is a step of whoever polls the control channel, unless somebody else does so just
// now.
func (k *control) poll() error {
	if !k.polling.TryLock() {
		return nil
	}
	defer k.polling.Unlock()
	_, err := k.handleBatch()
	return err
}

// handleBatch handles one batch of completions and returns their number. The caller holds the
// lock, and none that handling a message takes.
func (k *control) handleBatch() (int, error) {
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
		raise(k.lookDone)
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
	msg := k.scratch[:copy(k.scratch[:], controlSlot(k.recvMem, index)[:c.Len])]
	if err := k.postRecv(index); err != nil {
		return err
	}
	k.received.Add(1)
	k.c.hear()
	return k.handle(msg)
}

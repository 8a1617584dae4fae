package control

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// Channel is the control channel, which is channel 0. It has a separate completion queue
// and handler, so that credits never wait behind data.
type Channel struct {
	Sends
	c            *core.Session
	handle       func(msg []byte) error // handles a message
	w            *cq.Worker
	cq           fabric.CQ // of sends and receives
	idle         *epoll.Set
	notification cq.Notification
	comps        [16]fabric.Completion

	recvReg fabric.Region
	recvMem []byte
	opener  *seal.Opener // nil: messages are not sealed
	recvWR  [1]fabric.RecvWR
	scratch [protocol.MaxControlSize]byte // copy of the message that is being handled
	polling sync.Mutex                    // held while completions are polled and handled
	// unhandled has the completions of the last batch that were polled and not handled, from that on
	// whose handling has failed; guarded by polling.
	unhandled []fabric.Completion

	polled   atomic.Bool // with Config.Poll: the workers of the data channels poll it
	Received atomic.Uint64
	wanted   atomic.Uint64 // number of looks requested: see look
	looked   atomic.Uint64 // number of the last look that is done
	LookDone chan struct{} // signals that a look is done; capacity one
}

// New makes the control channel with buffers for the given numbers of sends and
// receives, and posts the receives.
func New(c *core.Session, o *Options, sends, receives int, handle func(msg []byte) error) (k *Channel, err error) {
	k = &Channel{c: c, handle: handle, opener: o.Opener, LookDone: make(chan struct{}, 1)}
	wake, err := c.NewEvent()
	if err != nil {
		return nil, err
	}
	k.w = c.Handlers.NewWorker(0, cq.RoleControl, wake)
	size := SlotSize(o.Sealer != nil)
	arena, err := c.Memory.Get((sends+receives)*size, true)
	if err != nil {
		return nil, err
	}
	mem := arena.Bytes()
	sendMem := mem[:sends*size]
	k.recvMem = mem[len(sendMem):][:receives*size]
	sendReg, err := c.Domain.Register(sendMem, 0)
	if err != nil {
		return nil, fmt.Errorf("register the control channel's send buffers: %w", err)
	}
	if k.recvReg, err = c.Domain.Register(k.recvMem, fabric.LocalWrite); err != nil {
		return nil, fmt.Errorf("register the control channel's receive buffers: %w", err)
	}
	if k.cq, err = c.Domain.NewCQ(sends+receives+1, c.Handlers.Vector(0)); err != nil {
		return nil, err
	}
	k.notification = cq.Notification{CQ: k.cq}
	qp, err := c.Domain.NewQP(fabric.QPConfig{
		Transport: fabric.RC, SendCQ: k.cq, RecvCQ: k.cq,
		TrafficClass: o.TrafficClass, ServiceLevel: o.ServiceLevel,
		MaxSend: sends, MaxRecv: receives,
	})
	if err != nil {
		return nil, err
	}
	k.init(qp, sendReg, sendMem, o)
	if o.Poll {
		k.progress = k.Poll
	}
	for i := range receives {
		if err := k.postRecv(uint16(i)); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *Channel) postRecv(i uint16) error {
	k.recvWR[0] = fabric.RecvWR{
		ID:   uint64(protocol.PackWRID(protocol.WRControlRecv, 0, i, 0)),
		Addr: memory.Address(slotOf(k.recvMem, k.size, i)), Len: uint32(k.size), LKey: k.recvReg.LKey(),
	}
	if _, err := k.QP.PostRecv(k.recvWR[:]); err != nil {
		return fmt.Errorf("post a receive on the control channel: %w", fabric.Refused(k.QP, err))
	}
	return nil
}

// ProvePath makes the second message of each side as long as the path MTU, in bytes. It is called before
// Start.
func (k *Channel) ProvePath(mtu int) { k.padded = uint32(mtu) }

// LeaveToOthers makes the control handler sleep, because the workers of the data channels call Poll.
func (k *Channel) LeaveToOthers() { k.polled.Store(true) }

// Start starts the control handler's goroutine.
func (k *Channel) Start() (err error) {
	if k.idle, err = k.c.NewWaiter(epoll.Readable(k.cq.FD()), epoll.Readable(k.w.Wake.FD())); err == nil {
		k.c.Work(k.w, k.run, nil)
	}
	return err
}

// run is the control handler's goroutine.
func (k *Channel) run() error {
	return k.idle.Run(func() (ended bool, err error) {
		k.w.Woke()
		if k.polled.Load() {
			k.w.Wake.Clear()
			k.w.BindThread()
			// A look was requested, and the workers that poll may all wait for their ports.
			return k.c.Stopped.Load(), k.Poll()
		}
		return k.w.UntilIdle(&k.notification, &k.c.Stopped, k.step)
	})
}

// step handles one batch of completions, on the handler's goroutine.
func (k *Channel) step() (bool, error) {
	k.polling.Lock()
	n, err := k.handleBatch()
	k.polling.Unlock()
	if n > 0 && err == nil {
		k.w.Spend(n)
	}
	return n > 0, err
}

// Poll handles one batch of completions on any other goroutine. It does nothing if another
// goroutine is handling one at the moment.
func (k *Channel) Poll() error {
	if !k.polling.TryLock() {
		return nil
	}
	defer k.polling.Unlock()
	_, err := k.handleBatch()
	return err
}

// handleBatch handles one batch of completions and returns their number. The caller holds
// polling, and no lock that the handling of a message takes.
func (k *Channel) handleBatch() (int, error) {
	wanted := k.wanted.Load()
	n, err := k.cq.Poll(k.comps[:])
	if err != nil {
		return 0, fmt.Errorf("poll the control channel: %w", err)
	}
	k.w.Took(n)
	for i := range k.comps[:n] {
		c := &k.comps[i]
		k.unhandled = k.comps[i:n]
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
	k.unhandled = nil
	if n < len(k.comps) && wanted != k.looked.Load() {
		k.looked.Store(wanted)
		wake.Up(k.LookDone)
	}
	return n, nil
}

// look makes the handler poll once more, and returns the number of that look. Once looked
// has reached the number, all messages that had arrived before the call are handled.
func (k *Channel) look() uint64 {
	n := k.wanted.Add(1)
	k.w.Wake.Set()
	return n
}

// receive handles one message. It copies the message and posts the receive again before
// the message takes effect. The bound on the number of updates in flight relies on this
// order (package bufpool).
func (k *Channel) receive(index uint16, c *fabric.Completion) error {
	if c.Op != fabric.OpRecv {
		return core.ControlViolation(core.ErrUnexpected, "an RDMA write with immediate data %#x", c.Imm)
	}
	path := k.padded > 0 && k.Received.Load() == 1
	if path && c.Len != k.padded {
		return core.ControlViolation(core.ErrPathMissing, "%d bytes, and the path MTU is %d", c.Len, k.padded)
	}
	msg, err := k.copy(slotOf(k.recvMem, k.size, index)[:c.Len])
	if err != nil {
		return err
	}
	if path {
		msg = msg[:protocol.PathRequestSize]
	}
	if err := k.postRecv(index); err != nil {
		return err
	}
	k.Received.Add(1)
	k.c.Hear()
	return k.handle(msg)
}

// copy copies a message, and opens it if messages are sealed. No key allows others to write to the
// receives.
func (k *Channel) copy(received []byte) ([]byte, error) {
	if k.opener == nil {
		return k.scratch[:copy(k.scratch[:], received)], nil
	}
	n := k.opener.Expected()
	msg, err := k.opener.Open(k.scratch[:], received, n, 0, 0, false)
	if err != nil {
		return nil, core.ControlViolation(err, "message %d, of %d bytes", n, len(received))
	}
	return msg, nil
}

// Failure returns the error of the next failed completion of the control channel that is not
// handled, but nil while another goroutine is handling completions.
func (k *Channel) Failure() error {
	if !k.polling.TryLock() {
		return nil
	}
	defer k.polling.Unlock()
	return core.NextFailure(k.cq, k.unhandled, k.comps[:], 0)
}

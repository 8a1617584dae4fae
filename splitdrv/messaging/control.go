package messaging

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
)

// control is the control channel, which is channel 0. It has a separate completion queue
// and handler, so that credits never wait behind data.
type control struct {
	controlSends
	c            *shared
	handle       func(msg []byte) error // handles a message
	w            *worker
	cq           fabric.CQ // of sends and receives
	idle         *epoll.Set
	notification notification
	comps        [16]fabric.Completion

	recvReg fabric.Region
	recvMem []byte
	recvWR  [1]fabric.RecvWR
	scratch [protocol.MaxControlSize]byte // copy of the message that is being handled
	polling sync.Mutex                    // held while completions are polled and handled
	// unhandled has the completions of the last batch that were polled and not handled, from that on
	// whose handling has failed; guarded by polling.
	unhandled []fabric.Completion

	polled   atomic.Bool // with Config.Poll: the workers of the data channels poll it
	received atomic.Uint64
	wanted   atomic.Uint64 // number of looks requested: see look
	looked   atomic.Uint64 // number of the last look that is done
	lookDone chan struct{} // signals that a look is done; capacity one
}

// newControl makes the control channel with buffers for the given numbers of sends and
// receives, and posts the receives.
func newControl(c *shared, o *controlOptions, sends, receives int, handle func(msg []byte) error) (k *control, err error) {
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
		TrafficClass: o.TrafficClass, ServiceLevel: o.ServiceLevel,
		MaxSend: sends, MaxRecv: receives,
	})
	if err != nil {
		return nil, err
	}
	k.init(qp, sendReg, sendMem, sends)
	if o.Poll {
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
		return fmt.Errorf("post a receive on the control channel: %w", refused(k.qp, err))
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
			// A look was requested, and the workers that poll may all wait for their ports.
			return k.c.stopped.Load(), k.poll()
		}
		return k.w.untilIdle(&k.notification, &k.c.stopped, k.step)
	})
}

// step handles one batch of completions, on the handler's goroutine.
func (k *control) step() (bool, error) {
	k.polling.Lock()
	n, err := k.handleBatch()
	k.polling.Unlock()
	if n > 0 && err == nil {
		k.w.spend(n)
	}
	return n > 0, err
}

// poll handles one batch of completions on any other goroutine. It does nothing if another
// goroutine is handling one at the moment.
func (k *control) poll() error {
	if !k.polling.TryLock() {
		return nil
	}
	defer k.polling.Unlock()
	_, err := k.handleBatch()
	return err
}

// handleBatch handles one batch of completions and returns their number. The caller holds
// polling, and no lock that the handling of a message takes.
func (k *control) handleBatch() (int, error) {
	wanted := k.wanted.Load()
	n, err := k.cq.Poll(k.comps[:])
	if err != nil {
		return 0, fmt.Errorf("poll the control channel: %w", err)
	}
	k.w.took(n)
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
		raise(k.lookDone)
	}
	return n, nil
}

// look makes the handler poll once more, and returns the number of that look. Once looked
// has reached the number, all messages that had arrived before the call are handled.
func (k *control) look() uint64 {
	n := k.wanted.Add(1)
	k.w.wake.Set()
	return n
}

// receive handles one message. It copies the message and posts the receive again before
// the message takes effect. The bound on the number of updates in flight relies on this
// order (package bufpool).
func (k *control) receive(index uint16, c *fabric.Completion) error {
	if c.Op != fabric.OpRecv {
		return controlViolation(ErrUnexpected, "an RDMA write with immediate data %#x", c.Imm)
	}
	length := c.Len
	if k.padded > 0 && k.received.Load() == 1 {
		if length != k.padded {
			return controlViolation(ErrPathMissing, "%d bytes, and the path MTU is %d", length, k.padded)
		}
		length = protocol.PathRequestSize
	}
	msg := k.scratch[:copy(k.scratch[:], controlSlot(k.recvMem, index)[:length])]
	if err := k.postRecv(index); err != nil {
		return err
	}
	k.received.Add(1)
	k.c.hear()
	return k.handle(msg)
}

// failure returns the error of the next failed completion of the control channel that is not
// handled, but nil while another goroutine is handling completions.
func (k *control) failure() error {
	if !k.polling.TryLock() {
		return nil
	}
	defer k.polling.Unlock()
	return nextFailure(k.cq, k.unhandled, k.comps[:], 0)
}

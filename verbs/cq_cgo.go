package verbs

// #cgo noescape snv_poll
// #cgo nocallback snv_poll
// #cgo noescape snv_arm
// #cgo nocallback snv_arm
// #cgo noescape snv_get_cq_event
// #cgo nocallback snv_get_cq_event
// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
)

// CQ is a completion queue with its own completion channel. It implements fabric.CQ. One
// goroutine should poll; all methods are safe for concurrent use.
type CQ struct {
	pd     *PD
	handle uint32
	depth  int
	family family // the queue pairs that use this CQ
	events *pollFD

	invFlags C.uint // bits of ibv_wc.wc_flags that mean that the peer invalidated a key

	closing sync.Mutex

	mu sync.Mutex // guards cq; contended only by Arm and Close
	cq *C.struct_ibv_cq

	eventMu sync.Mutex // guards channel
	channel *C.struct_ibv_comp_channel
}

var (
	_ fabric.CQ        = (*CQ)(nil)
	_ fabric.Moderator = (*CQ)(nil)
)

// NewCQ implements fabric.Domain. The device may make the queue deeper than requested.
//
// Implements: struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int comp_vector)
// Implements: struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
func (d *PD) NewCQ(depth, vector int) (fabric.CQ, error) {
	op := fmt.Sprintf("create completion queue of %d entries on vector %d", depth, vector)
	if !d.family.enter() {
		return nil, d.closedErr(op)
	}
	defer d.family.leave()
	l := d.ctx.limits
	if depth < 1 || depth > l.MaxCQE || vector < 0 || vector >= l.CompVectors {
		return nil, opErr(d.ctx.name, op, syscall.EINVAL, cqHint(syscall.EINVAL, depth, vector, l))
	}
	c := &CQ{pd: d, invFlags: C.IBV_WC_WITH_INV}
	if d.ctx.driver == rxeDriver {
		// Soft-RoCE passes the kernel's flag IB_WC_WITH_INVALIDATE through unchanged. This is
		// the bit IBV_WC_IP_CSUM_OK of user space. Soft-RoCE never sets the checksum flag
		// itself, so the bit is unambiguous.
		c.invFlags |= C.IBV_WC_IP_CSUM_OK
	}
	if no := errno(C.snv_create_channel(d.ctx.ctx, &c.channel)); no != 0 {
		return nil, opErr(d.ctx.name, "create completion channel", no, "")
	}
	if no := errno(C.snv_create_cq(d.ctx.ctx, C.int(depth), c.channel, C.int(vector), &c.cq)); no != 0 {
		C.ibv_destroy_comp_channel(c.channel)
		return nil, opErr(d.ctx.name, op, no, cqHint(no, depth, vector, l))
	}
	c.handle, c.depth = uint32(c.cq.handle), int(c.cq.cqe)
	c.events = newPollFD(int(c.channel.fd), c.takeEvent)
	d.family.add(c, rankCQ)
	return c, nil
}

// Handle identifies the queue in events of type EventCQErr.
func (c *CQ) Handle() uint32 { return c.handle }

// Depth returns the capacity in completions, which is at least the requested depth.
func (c *CQ) Depth() int { return c.depth }

func (c *CQ) opErr(op string, err error) error {
	return &OpError{Op: op, Device: c.pd.ctx.name, Err: wrapped(err)}
}

// number returns the queue in the form that the shim takes. mu is held.
func (c *CQ) number() C.snv_cq { return C.snv_cq(uintptr(unsafe.Pointer(c.cq))) }

// Poll implements fabric.CQ.
//
// Implements: int ibv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
func (c *CQ) Poll(out []fabric.Completion) (int, error) {
	if len(out) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	if c.cq == nil {
		c.mu.Unlock()
		return 0, c.opErr("poll completion queue", net.ErrClosed)
	}
	n := C.snv_poll(c.number(), (*C.struct_snv_wc)(unsafe.Pointer(&out[0])), C.int(len(out)), c.invFlags)
	c.mu.Unlock()
	if n < 0 {
		return 0, c.opErr("poll completion queue", syscall.Errno(-n))
	}
	return int(n), nil
}

// Arm implements fabric.CQ. If armed for solicited completions only, some devices raise no
// event for the failed completion of a send. The CQ of a send queue must be armed for all
// completions.
//
// Implements: int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
func (c *CQ) Arm(solicitedOnly bool) error {
	var s C.int
	if solicitedOnly {
		s = 1
	}
	c.mu.Lock()
	if c.cq == nil {
		c.mu.Unlock()
		return c.opErr("arm completion queue", net.ErrClosed)
	}
	no := errno(C.snv_arm(c.number(), s))
	c.mu.Unlock()
	if no != 0 {
		return c.opErr("arm completion queue", no)
	}
	return nil
}

// Moderate implements fabric.Moderator.
//
// Implements: int ibv_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *cq_attr)
func (c *CQ) Moderate(count int, period time.Duration) error {
	op := fmt.Sprintf("moderate completion queue to one event per %d completions or %v", count, period)
	if err := checkModeration(count, period); err != nil {
		return c.opErr(op, fmt.Errorf("%w: %w", err, syscall.EINVAL))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cq == nil {
		return c.opErr(op, net.ErrClosed)
	}
	no := errno(C.snv_moderate(c.cq, C.uint16_t(count), C.uint16_t(period/time.Microsecond)))
	if no != 0 {
		a := &c.pd.ctx.attr
		return opErr(c.pd.ctx.name, op, no, moderationHint(no, a.ModerationCount, a.ModerationPeriod))
	}
	return nil
}

// FD implements fabric.CQ.
func (c *CQ) FD() int { return c.events.fd }

// takeEvent consumes one event and acknowledges it; it never blocks.
func (c *CQ) takeEvent() syscall.Errno {
	c.eventMu.Lock()
	if c.channel == nil {
		c.eventMu.Unlock()
		return syscall.EBADF
	}
	no := errno(C.snv_get_cq_event(c.channel))
	c.eventMu.Unlock()
	return no
}

// ReadEvent implements fabric.CQ.
//
// Implements: int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
// Implements: void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
func (c *CQ) ReadEvent() (bool, error) {
	switch no := c.takeEvent(); no {
	case 0:
		return true, nil
	case syscall.EAGAIN:
		return false, nil
	case syscall.EBADF:
		return false, c.opErr("read completion event", net.ErrClosed)
	default:
		return false, c.opErr("read completion event", no)
	}
}

// Wait implements fabric.CQ. Concurrent calls are served one after the other. Repeated calls
// with the same context allocate only the first time.
func (c *CQ) Wait(ctx context.Context) error {
	if err := c.events.wait(ctx); err != nil {
		return c.opErr("wait for a completion event", err)
	}
	return nil
}

// Close closes the queue pairs that use the CQ, and then the CQ. It is idempotent. Calls of
// Wait return net.ErrClosed.
//
// Implements: int ibv_destroy_cq(struct ibv_cq *cq)
// Implements: int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
func (c *CQ) Close() error {
	if err := c.family.close(); err != nil {
		return err
	}
	c.closing.Lock()
	defer c.closing.Unlock()
	if err := c.events.close(); err != nil {
		return c.opErr("close completion channel", err)
	}
	if err := c.destroy(); err != nil {
		return err
	}
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	if c.channel == nil {
		return nil
	}
	if no := c.pd.ctx.destroyChannel(c.channel); no != 0 {
		return c.opErr("destroy completion channel", no)
	}
	c.channel = nil
	c.pd.family.remove(c)
	return nil
}

func (c *CQ) destroy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cq == nil {
		return nil
	}
	if no := c.pd.ctx.given(errno(C.ibv_destroy_cq(c.cq))); no != 0 {
		return c.opErr("destroy completion queue", no)
	}
	c.cq = nil
	return nil
}

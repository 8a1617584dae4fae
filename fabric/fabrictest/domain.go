package fabrictest

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/inline"
)

var _ fabric.Domain = (*domain)(nil)

// Register implements fabric.Domain.
func (d *domain) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	fail := func(err error) (fabric.Region, error) {
		return nil, fmt.Errorf("registering %d bytes on %s: %w", len(mem), d.dev.node.name, err)
	}
	if len(mem) == 0 {
		return fail(fmt.Errorf("a region needs at least one byte: %w", unix.EINVAL))
	}
	if access&^(fabric.LocalWrite|fabric.RemoteWrite|fabric.WindowBind|fabric.RemoteRead|fabric.Relaxed) != 0 {
		return fail(fmt.Errorf("unknown access %#x: %w", access, unix.EINVAL))
	}
	if access&fabric.RemoteWrite != 0 && access&fabric.LocalWrite == 0 {
		return fail(fmt.Errorf("RemoteWrite needs LocalWrite: %w", unix.EINVAL))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.dev.gone.Load() {
		return fail(d.dev.closedErr())
	}
	r := newRegion(d, mem, access)
	d.objects[r] = struct{}{}
	return r, nil
}

// NewWindow implements fabric.Domain.
func (d *domain) NewWindow() (fabric.Window, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.dev.gone.Load() {
		return nil, fmt.Errorf("allocating a memory window on %s: %w", d.dev.node.name, d.dev.closedErr())
	}
	if !d.dev.net.limits.Windows || d.dev.net.adapter.Windows == NoWindowAlloc {
		return nil, fmt.Errorf("allocating a memory window on %s: %w", d.dev.node.name, fabric.ErrUnsupported)
	}
	w := newWindow(d)
	d.objects[w] = struct{}{}
	return w, nil
}

// NewCQ implements fabric.Domain.
func (d *domain) NewCQ(depth, vector int) (fabric.CQ, error) {
	fail := func(err error) (fabric.CQ, error) {
		return nil, fmt.Errorf("making a completion queue of %d on %s: %w", depth, d.dev.node.name, err)
	}
	l := &d.dev.net.limits
	if depth < 1 || depth > l.MaxCQE {
		return fail(fmt.Errorf("the depth must be 1 to %d: %w", l.MaxCQE, unix.EINVAL))
	}
	if vector < 0 || vector >= l.CompVectors {
		return fail(fmt.Errorf("completion vector %d: the device has %d: %w", vector, l.CompVectors, unix.EINVAL))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.dev.gone.Load() {
		return fail(d.dev.closedErr())
	}
	c, err := newCQ(d, depth)
	if err != nil {
		return fail(err)
	}
	c.failQPs = func() {
		for _, q := range d.qpsOn(c) {
			_ = q.Fail() // fails only if q is closed
		}
	}
	d.objects[c] = struct{}{}
	return c, nil
}

// NewQP implements fabric.Domain.
func (d *domain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	fail := func(err error) (fabric.QP, error) {
		return nil, fmt.Errorf("making a queue pair on %s: %w", d.dev.node.name, err)
	}
	l := &d.dev.net.limits
	send, ok1 := cfg.SendCQ.(*cq)
	recv, ok2 := cfg.RecvCQ.(*cq)
	switch {
	case cfg.ServiceLevel > 15:
		return fail(fmt.Errorf("service level %d is over 15: %w", cfg.ServiceLevel, unix.EINVAL))
	case cfg.Transport != fabric.RC && cfg.Transport != fabric.UC:
		return fail(fmt.Errorf("unknown transport %d: %w", cfg.Transport, unix.EINVAL))
	case !ok1 || !ok2 || send.dom != d || recv.dom != d:
		return fail(fmt.Errorf("the completion queues are not of this domain: %w", unix.EINVAL))
	case cfg.MaxSend < 1 || cfg.MaxSend > l.MaxQPWR:
		return fail(fmt.Errorf("MaxSend is %d and must be 1 to %d: %w", cfg.MaxSend, l.MaxQPWR, unix.EINVAL))
	case cfg.MaxRecv < 1 || cfg.MaxRecv > l.MaxQPWR:
		return fail(fmt.Errorf("MaxRecv is %d and must be 1 to %d: %w", cfg.MaxRecv, l.MaxQPWR, unix.EINVAL))
	case cfg.MaxSGE < 0 || cfg.MaxSGE > max(l.MaxSGE, 1):
		return fail(fmt.Errorf("MaxSGE is %d and must be up to %d: %w", cfg.MaxSGE, max(l.MaxSGE, 1), unix.EINVAL))
	case int(cfg.MaxRdAtomic) > l.MaxRdAtomic:
		return fail(fmt.Errorf("MaxRdAtomic is %d and must be up to %d: %w", cfg.MaxRdAtomic, l.MaxRdAtomic, unix.EINVAL))
	case int(cfg.MaxDestRdAtomic) > l.MaxDestRdAtomic:
		return fail(fmt.Errorf("MaxDestRdAtomic is %d and must be up to %d: %w", cfg.MaxDestRdAtomic, l.MaxDestRdAtomic,
			unix.EINVAL))
	case cfg.Transport != fabric.RC && cfg.MaxRdAtomic|cfg.MaxDestRdAtomic != 0:
		return fail(fmt.Errorf("reads on a connection that is not reliable: %w", unix.EINVAL))
	case cfg.MaxInline < 0:
		return fail(fmt.Errorf("MaxInline is %d and must not be negative: %w", cfg.MaxInline, unix.EINVAL))
	}
	if no := d.dev.net.adapter.refusal(cfg.Transport); no != nil {
		return fail(fmt.Errorf("transport %d: %w", cfg.Transport, no))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.dev.gone.Load() || send.isClosed() || recv.isClosed() {
		return fail(d.dev.closedErr())
	}
	cfg.MaxSGE = max(cfg.MaxSGE, 1)
	var no syscall.Errno
	cfg.MaxInline, no = d.dev.inline.Create(d.dev.net.adapter.Driver, inline.Shape{
		Transport: cfg.Transport, Send: cfg.MaxSend, Recv: cfg.MaxRecv, SGE: cfg.MaxSGE, Inline: cfg.MaxInline,
	}, d.dev.net.adapter.grant)
	if no != 0 {
		return fail(no)
	}
	q := newQP(d, cfg, send, recv)
	d.objects[q] = struct{}{}
	return q, nil
}

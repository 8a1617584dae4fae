package verbs

// #include "shim.h"
import "C"

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"syscall"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/inline"
)

// QP is a queue pair. It implements fabric.QP. All methods are safe for concurrent use. One
// goroutine at a time should post to the send queue and one to the receive queue, which keeps
// the mutexes of the queues uncontended.
//
// Connect makes all transitions of a connection. ToInit, ToRTR, ToRTS, Fail and Reset make
// one transition each.
type QP struct {
	pd             *PD
	cfg            fabric.QPConfig
	sendCQ, recvCQ *CQ
	num            uint32
	addr           fabric.Address
	port           PortAttr
	gid            GIDEntry

	ctl   sync.Mutex // serialises transitions and Close; taken before sendMu and recvMu
	state QPState
	qp    *C.struct_ibv_qp // nil once closed

	bound bindings

	// Different goroutines use the two queues. The padding puts them on different cache lines.
	_       [64]byte
	sendMu  sync.Mutex
	sq      C.snv_qp // 0 if sends may not be posted
	sendLim C.struct_snv_send_limits
	_       [64]byte
	recvMu  sync.Mutex
	rq      C.snv_qp // 0 if receives may not be posted
}

var _ fabric.QP = (*QP)(nil)

// NewQP implements fabric.Domain. It creates the queue pair and moves it to INIT. The address,
// including the GID, does not change afterwards.
//
// Implements: struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
func (d *PD) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	const op = "create queue pair"
	if !d.family.enter() {
		return nil, d.closedErr(op)
	}
	defer d.family.leave()
	if err := checkConfig(cfg, d.ctx.limits); err != nil {
		return nil, &OpError{Op: op, Device: d.ctx.name, Err: fmt.Errorf("%w: %w", err, syscall.EINVAL)}
	}
	cfg.MaxSGE = max(cfg.MaxSGE, 1)
	q := &QP{pd: d, cfg: cfg}
	q.sendLim.sge = C.uint32_t(cfg.MaxSGE)
	q.sendLim.rd = C.uint32_t(cfg.MaxRdAtomic)
	var p C.struct_snv_qp_params
	switch cfg.Transport {
	case fabric.RC:
		p._type = C.IBV_QPT_RC
	case fabric.UC:
		p._type = C.IBV_QPT_UC
	default:
		return nil, opErr(d.ctx.name, op, syscall.EINVAL, "the transport is neither RC nor UC")
	}
	var ok bool
	if q.sendCQ, ok = cfg.SendCQ.(*CQ); ok {
		q.recvCQ, ok = cfg.RecvCQ.(*CQ)
	}
	if !ok || q.sendCQ.pd.ctx != d.ctx || q.recvCQ.pd.ctx != d.ctx {
		return nil, opErr(d.ctx.name, op, syscall.EINVAL, "it needs a send CQ and a receive CQ of the same device")
	}
	if !q.sendCQ.family.enter() {
		return nil, d.closedErr(op)
	}
	defer q.sendCQ.family.leave()
	if q.recvCQ != q.sendCQ {
		if !q.recvCQ.family.enter() {
			return nil, d.closedErr(op)
		}
		defer q.recvCQ.family.leave()
	}
	if err := q.makeAddress(); err != nil {
		return nil, err
	}
	p.send_cq, p.recv_cq = q.sendCQ.cq, q.recvCQ.cq
	p.max_send_wr, p.max_recv_wr = C.uint32_t(cfg.MaxSend), C.uint32_t(cfg.MaxRecv)
	p.max_sge = q.sendLim.sge
	shape := inline.Shape{
		Transport: cfg.Transport, Send: cfg.MaxSend, Recv: cfg.MaxRecv, SGE: cfg.MaxSGE, Inline: cfg.MaxInline,
	}
	granted, no := d.ctx.inline.Create(d.ctx.driver, shape, func(size int) (int, syscall.Errno) {
		p.max_inline = C.uint32_t(size)
		no := errno(C.snv_create_qp(d.pd, &p, &q.qp))
		return int(p.max_inline), no
	})
	if no != 0 {
		return nil, opErr(d.ctx.name, op, no, qpHint(no, cfg, d.ctx.limits))
	}
	q.cfg.MaxInline, q.sendLim.inl = granted, C.uint32_t(granted)
	q.num = uint32(q.qp.qp_num)
	q.addr.QPN = q.num
	if err := q.ToInit(); err != nil {
		C.ibv_destroy_qp(q.qp)
		return nil, err
	}
	d.family.add(q, rankQP)
	q.sendCQ.family.add(q, rankQP)
	q.recvCQ.family.add(q, rankQP)
	return q, nil
}

// makeAddress sets the address, except the queue pair number.
func (q *QP) makeAddress() error {
	var err error
	if q.port, q.gid, err = q.pd.place(); err != nil {
		return err
	}
	q.addr = ownAddress(q.port, q.gid, q.pd.ctx.cfg.gidIndex >= 0)
	var b [4]byte
	rand.Read(b[:])
	q.addr.PSN = binary.LittleEndian.Uint32(b[:]) & 0xffffff
	return nil
}

func (q *QP) opErr(op string, err error, hint string) error {
	return &OpError{Op: op, Device: q.pd.ctx.name, QPN: q.num, Err: wrapped(err), Hint: hint}
}

// Num implements fabric.QP.
func (q *QP) Num() uint32 { return q.num }

// MaxInline implements fabric.QP.
func (q *QP) MaxInline() int { return q.cfg.MaxInline }

// Address implements fabric.QP.
func (q *QP) Address() fabric.Address { return q.addr }

// GID returns the entry of the GID table that the queue pair uses.
func (q *QP) GID() GIDEntry { return q.gid }

// State returns the state after the last transition made by this package. The device itself
// moves a queue pair to ERR when a work request fails, which only QueryState shows.
func (q *QP) State() QPState {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	return q.state
}

// QueryState queries the state from the device.
//
// Implements: int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask, struct ibv_qp_init_attr *init_attr)
func (q *QP) QueryState() (QPState, error) {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.qp == nil {
		return 0, q.opErr("query queue pair", net.ErrClosed, "")
	}
	var s C.int
	if no := errno(C.snv_query_qp_state(q.qp, &s)); no != 0 {
		return 0, q.opErr("query queue pair", no, "")
	}
	return QPState(s), nil
}

// Failed implements fabric.QP.
func (q *QP) Failed() (bool, error) {
	s, err := q.QueryState()
	return s == StateErr, err
}

// modify makes one transition, for which a has the attributes. ctl is held.
//
// Implements: int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
func (q *QP) modify(to QPState, a C.struct_snv_qp_attr, hint func(syscall.Errno) string) error {
	op := fmt.Sprintf("modify from %s to %s", q.state, to)
	if q.qp == nil {
		return q.opErr(op, net.ErrClosed, "")
	}
	mask, err := transitionAttrs(q.cfg.Transport, q.state, to)
	if err != nil {
		return q.opErr(op, fmt.Errorf("%w: %w", err, syscall.EINVAL), "")
	}
	a.state, a.attr_mask = C.uint32_t(to), C.uint32_t(mask)
	if no := errno(C.snv_modify_qp(q.qp, &a)); no != 0 {
		h := ""
		if hint != nil {
			h = hint(no)
		}
		return q.opErr(op+" ("+mask.String()+")", no, h)
	}
	q.state = to
	q.openQueues(to >= StateRTS, to != StateReset)
	return nil
}

// openQueues opens or closes the queues for posting. ctl is held.
func (q *QP) openQueues(send, recv bool) {
	number := C.snv_qp(uintptr(unsafe.Pointer(q.qp)))
	q.sendMu.Lock()
	q.sq = 0
	if send {
		q.sq = number
	}
	q.sendMu.Unlock()
	q.recvMu.Lock()
	q.rq = 0
	if recv {
		q.rq = number
	}
	q.recvMu.Unlock()
}

// ToInit moves the queue pair from RESET to INIT, in which receives can be posted. The peer
// may use RDMA writes, RDMA reads if MaxDestRdAtomic is not 0, and no atomics.
func (q *QP) ToInit() error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	a := C.struct_snv_qp_attr{
		port:   C.uint8_t(q.pd.ctx.cfg.port),
		access: C.IBV_ACCESS_REMOTE_WRITE,
		// place has set it before the queue pair was created.
		pkey_index: C.uint16_t(q.pd.pkey),
	}
	if q.cfg.MaxDestRdAtomic > 0 {
		a.access |= C.IBV_ACCESS_REMOTE_READ
	}
	return q.modify(StateInit, a, nil)
}

// ToRTR moves the queue pair from INIT to RTR, in which it receives from remote. On RoCE the
// kernel resolves the peer's link-layer address during the call, which blocks until there is
// an answer or the resolution times out.
func (q *QP) ToRTR(remote fabric.Address, t fabric.Timing) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	t = t.WithDefaults()
	if err := q.checkConnect(remote, t); err != nil {
		return err
	}
	c := q.pd.ctx
	a := C.struct_snv_qp_attr{
		path_mtu:           C.uint32_t(mtuEnum(min(q.port.ActiveMTU, remote.MTU))),
		dest_qpn:           C.uint32_t(remote.QPN),
		rq_psn:             C.uint32_t(remote.PSN),
		port:               C.uint8_t(c.cfg.port),
		dlid:               C.uint16_t(remote.LID),
		sl:                 C.uint8_t(q.cfg.ServiceLevel),
		min_rnr_timer:      C.uint8_t(t.MinRNRTimer),
		max_dest_rd_atomic: rdAtomic(q.cfg.MaxDestRdAtomic),
	}
	if global(q.addr, remote) {
		a.is_global = 1
		a.sgid_index = C.uint8_t(q.gid.Index)
		a.hop_limit = C.uint8_t(hopLimit(q.cfg))
		a.traffic_class = C.uint8_t(q.cfg.TrafficClass)
		for i, b := range remote.GID {
			a.dgid[i] = C.uint8_t(b)
		}
	}
	return q.modify(StateRTR, a, func(no syscall.Errno) string {
		return rtrHint(no, q.gid.GID, GID(remote.GID))
	})
}

// rdAtomic returns the number of outstanding reads to configure on the device. It is at least
// 1, the smallest value that every device accepts. With n = 0 the access flags forbid reads.
func rdAtomic(n uint8) C.uint8_t { return C.uint8_t(max(n, 1)) }

// checkConnect returns an error that names an invalid attribute of a connection.
func (q *QP) checkConnect(r fabric.Address, t fabric.Timing) error {
	err := checkAddress(r, q.port)
	if err == nil {
		err = checkTiming(t)
	}
	if err != nil {
		return q.opErr("connect", fmt.Errorf("%w: %w", err, syscall.EINVAL), "")
	}
	return nil
}

// ToRTS moves the queue pair from RTR to RTS, in which sends can be posted.
func (q *QP) ToRTS(t fabric.Timing) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	t = t.WithDefaults()
	if err := checkTiming(t); err != nil {
		return q.opErr("connect", fmt.Errorf("%w: %w", err, syscall.EINVAL), "")
	}
	a := C.struct_snv_qp_attr{
		sq_psn:        C.uint32_t(q.addr.PSN),
		timeout:       C.uint8_t(t.Timeout),
		retry_cnt:     C.uint8_t(t.RetryCount),
		rnr_retry:     C.uint8_t(t.RNRRetry),
		max_rd_atomic: rdAtomic(q.cfg.MaxRdAtomic),
	}
	return q.modify(StateRTS, a, nil)
}

// Connect implements fabric.QP.
func (q *QP) Connect(remote fabric.Address, t fabric.Timing) error {
	if err := q.ToRTR(remote, t); err != nil {
		return err
	}
	return q.ToRTS(t)
}

// Fail implements fabric.QP. Receives posted afterwards may never complete.
func (q *QP) Fail() error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	return q.modify(StateErr, C.struct_snv_qp_attr{}, nil)
}

// Reset moves the queue pair to RESET. Both queues are emptied without completions, and the
// windows that are bound to the queue pair become unbound.
func (q *QP) Reset() error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.qp != nil {
		if err := q.quiesce(); err != nil {
			return err
		}
	}
	return q.modify(StateReset, C.struct_snv_qp_attr{}, nil)
}

// quiesce closes the queues for posting, moves the queue pair to ERR to stop the
// retransmission timers, and ends the bindings of windows. Old kernels let the timers of
// Soft-RoCE fire on a destroyed queue pair. ctl is held.
func (q *QP) quiesce() error {
	q.openQueues(false, false)
	if q.state == StateRTR || q.state == StateRTS {
		if err := q.pd.ctx.givenErr(q.modify(StateErr, C.struct_snv_qp_attr{}, nil)); err != nil {
			return err
		}
		q.openQueues(false, false)
	}
	return q.bound.release()
}

// Close implements fabric.QP. Windows bound to the queue pair become unbound.
//
// Implements: int ibv_destroy_qp(struct ibv_qp *qp)
func (q *QP) Close() error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.qp == nil {
		return nil
	}
	if err := q.quiesce(); err != nil {
		return err
	}
	if no := q.pd.ctx.given(errno(C.ibv_destroy_qp(q.qp))); no != 0 {
		return q.opErr("destroy queue pair", no, "")
	}
	q.qp = nil
	q.pd.family.remove(q)
	q.sendCQ.family.remove(q)
	q.recvCQ.family.remove(q)
	return nil
}

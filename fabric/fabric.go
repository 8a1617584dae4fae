package fabric

import (
	"cmp"
	"context"
	"errors"
	"time"
)

var (
	// ErrQueueFull is wrapped by the error of a post to a full work queue (ENOMEM of
	// ibv_post_send(3)).
	ErrQueueFull = errors.New("work queue full")
	// ErrUnsupported is wrapped by errors about a feature that the device or the
	// implementation does not have.
	ErrUnsupported = errors.New("not supported by the device")
)

// Device is an open RDMA device.
type Device interface {
	// Name returns the name of the RDMA device, such as rxe0 or mlx5_0.
	Name() string
	// Limits returns the limits, which do not change while the device is open.
	Limits() Limits
	// NewDomain allocates a protection domain. Each peer needs its own, so that a key of one
	// peer is invalid on the queue pairs of another.
	NewDomain() (Domain, error)
	// Close closes the domains and then the device.
	Close() error
}

// Limits has the limits of a device that the upper layers must respect.
type Limits struct {
	MaxQPWR     int // work requests in one work queue
	MaxCQE      int // entries in one completion queue
	CompVectors int // completion vectors, the number of interrupts that CQs can be spread over
	MaxMsg      int // bytes in one message
	MaxSGE      int // pieces of data in one send request
	// MaxRdAtomic and MaxDestRdAtomic are the maximum numbers of outstanding reads of a
	// queue pair: its own reads, and the reads of the peer.
	MaxRdAtomic     int
	MaxDestRdAtomic int
	Moderation      bool // completion queues can delay events, and implement Moderator
	// Windows reports whether the device claims type-2 memory windows. Not all that do have any:
	// see conform.TryWindows.
	Windows bool
	// WindowBounds reports whether the bounds of a window are enforced. Soft-RoCE checks only
	// the bounds of the window's region.
	WindowBounds bool
	// NUMANode is the NUMA node of the device, which is also the best node for its memory. It
	// is -1 if the device is on no node, as with Soft-RoCE, or the kernel reports none.
	NUMANode int
}

// Access is a set of access rights of a region, in addition to local read.
type Access uint8

const (
	LocalWrite  Access = 1 << iota // the device may write here for its own work requests
	RemoteWrite                    // the peer may write here with the region's key; needs LocalWrite
	WindowBind                     // windows may be bound to the region
	RemoteRead                     // the peer may read here with the region's key
	// Relaxed is not a right. It permits relaxed ordering: until a work request has
	// completed, its writes to the region may become visible in any order, also after the
	// writes of later requests. So data must not be read before the completion that covers
	// it. A device without relaxed ordering ignores the flag.
	Relaxed
)

// Domain is a protection domain, and owns all objects created through it.
type Domain interface {
	// Register registers mem with the device. mem must be outside the Go heap (mmap) and stay
	// mapped until the region is closed. The caller remains its owner.
	Register(mem []byte, access Access) (Region, error)
	// NewWindow allocates an unbound type-2 memory window.
	NewWindow() (Window, error)
	// NewCQ creates a completion queue for at least depth completions, with its events on the
	// given completion vector (0 … Limits.CompVectors-1).
	NewCQ(depth, vector int) (CQ, error)
	// NewQP creates a queue pair in state INIT. Receives can be posted; no message arrives
	// before Connect.
	NewQP(QPConfig) (QP, error)
	Close() error
}

// Region is registered memory.
type Region interface {
	LKey() uint32 // for SendWR.LKey and RecvWR.LKey
	RKey() uint32 // for the peer's SendWR.RKey
	Addr() uint64 // virtual address of the first byte, which both sides use
	Len() int
	// Close deregisters. It fails while a window is bound to the region.
	Close() error
}

// Window is a type-2 memory window: a key for part of a region, which is valid on one queue
// pair only and can be invalidated.
type Window interface {
	// RKey returns the key of the last bind, or of the allocation if there was no bind. Each
	// bind increments the low eight bits of the key, without carry (ibv_inc_rkey(3)). So each
	// key predicts the next one, until the queue pair that the window is bound to is closed.
	RKey() uint32
	// Bound reports whether the window is bound: from a successful QP.Bind until QP.Unbind,
	// or until Invalidated is called because the peer invalidated the window.
	Bound() bool
	// Invalidated records that a completion with WithInv named this window.
	Invalidated()
	Close() error
}

// BindWR is a work request that binds a window to [Addr, Addr+Length) of a region. The window must
// not be bound.
type BindWR struct {
	ID     uint64 // returned in Completion.ID
	Window Window
	Region Region // registered with WindowBind, and with LocalWrite for RemoteWrite
	Addr   uint64
	Length int
	Access Access // rights of the peer with the key: RemoteWrite, RemoteRead, or both
	Flags  Flags  // Signaled or 0
}

// Grants reports whether a window can grant the rights that are asked for.
func (b *BindWR) Grants() bool {
	const all = RemoteWrite | RemoteRead
	return b.Access&all != 0 && b.Access&^all == 0
}

// Transport is the service type of a queue pair.
type Transport uint8

const (
	RC Transport = iota + 1 // reliable connected: ordered, acknowledged
	UC                      // unreliable connected: ordered, may lose whole messages
)

// QPConfig is the configuration of a queue pair.
type QPConfig struct {
	Transport Transport
	SendCQ    CQ
	RecvCQ    CQ
	MaxSend   int // send work requests outstanding
	MaxRecv   int // receive work requests outstanding
	// MaxInline is how many bytes an Inline work request should be able to carry. The device
	// may grant fewer, also none: see QP.MaxInline. That is no error.
	MaxInline int
	MaxSGE    int // records of one send request, with More; 0 means 1

	// Maximum numbers of outstanding reads (ibv_modify_qp(3)): MaxRdAtomic for the reads of
	// this side, MaxDestRdAtomic for those of the peer. With MaxRdAtomic 0 this side cannot
	// post reads. With MaxDestRdAtomic 0 it rejects the peer's reads, whatever the rights of
	// the region. RC only. The peer's MaxDestRdAtomic must not be less than MaxRdAtomic.
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8

	// Header fields of packets, from Connect on. A device ignores the fields that it does not
	// support.
	TrafficClass uint8 // traffic class of IPv6, type of service of IPv4, of the GRH: DSCP and ECN
	ServiceLevel uint8 // of InfiniBand, 0 … 15; on RoCE the priority, unless the traffic class decides
	HopLimit     uint8 // routers that packets may cross; 0 means 64
}

// Address is the address of a queue pair, with which the peer connects its own queue pair.
type Address struct {
	GID [16]byte // GID of the port; all zero on fabrics that address by LID only
	LID uint16
	QPN uint32 // 24 bits
	PSN uint32 // 24 bits, random: the first packet sequence number of this side
	MTU int    // bytes: the largest path MTU this side can use
}

// Timing has the timers of a connection, in the encoding of ibv_modify_qp(3). The zero value
// of a field means its default.
type Timing struct {
	Timeout     uint8 // 4.096 µs × 2^Timeout before a retransmission; default 14 (67 ms)
	RetryCount  uint8 // 1 … 6 (7 means for ever on some devices); default 6
	RNRRetry    uint8 // 7 means for ever; default 7
	MinRNRTimer uint8 // default 12 (0.64 ms)
}

// WithDefaults returns t with its zero fields set.
func (t Timing) WithDefaults() Timing {
	t.Timeout = cmp.Or(t.Timeout, 14)
	t.RetryCount = cmp.Or(t.RetryCount, 6)
	t.RNRRetry = cmp.Or(t.RNRRetry, 7)
	t.MinRNRTimer = cmp.Or(t.MinRNRTimer, 12)
	return t
}

// QP is a queue pair, one end of a channel.
type QP interface {
	Num() uint32
	// Address returns the address that the peer passes to Connect. It does not change.
	Address() Address
	// MaxInline returns how many bytes an Inline work request may carry: QPConfig.MaxInline, or
	// less if the device does not grant that.
	MaxInline() int
	// Connect moves the queue pair from INIT through RTR to RTS. Both ends must be connected
	// before either sends: an end in INIT drops a message, and the sender retries it. The
	// smaller of the two MTUs is used.
	Connect(remote Address, t Timing) error
	// PostSend posts wrs in order with one doorbell and returns the number of posted records.
	// On an error, wrs[n] is the first record of the first rejected request.
	PostSend(wrs []SendWR) (n int, err error)
	// PostRecv posts wrs in order and returns the number of posted records.
	PostRecv(wrs []RecvWR) (n int, err error)
	// Bind binds a window through the send queue, for this queue pair only, and returns the new
	// key. The key may be sent to the peer on this queue pair at once, without waiting for the
	// bind.
	Bind(b BindWR) (rkey uint32, err error)
	// BindSend posts a bind like Bind, and after it, in the same post, an OpSendImm without
	// data whose immediate data is the new key. The peer receives the key when the window is
	// bound, and this side does not wait for the bind before it sends. The SEND has the
	// identifier send and the flags f. If the bind fails, the queue pair fails and the SEND is
	// flushed. If BindSend returns an error, the SEND was not posted, and Window.Bound reports
	// whether the bind was.
	BindSend(b BindWR, send uint64, f Flags) (rkey uint32, err error)
	// Unbind invalidates w through the send queue (LOCAL_INV). It rejects a window that is not
	// bound, because invalidating a window twice crashes Soft-RoCE.
	Unbind(w Window, id uint64, f Flags) error
	// Fail moves the queue pair to the error state. Outstanding work requests and later sends
	// complete with StatusWRFlushErr. Some devices refuse later posts instead.
	Fail() error
	// Failed queries from the device whether the queue pair is in the error state. The query
	// takes a system call and, on some devices, a firmware command.
	Failed() (bool, error)
	// Close destroys the queue pair. Completions that it has not reported yet are lost.
	Close() error
}

// CQ is a completion queue with its own completion channel.
//
// To sleep without losing a wake-up: poll until the CQ is empty, call Arm, poll again, and only
// if the CQ is still empty, wait. To wait, call Wait, or poll(2) on FD and then ReadEvent.
type CQ interface {
	// Poll moves up to len(out) completions to out and returns their number.
	// It never blocks.
	Poll(out []Completion) (int, error)
	// Arm requests one event at the next completion, or with solicitedOnly at the next
	// solicited or failed completion. Completions that are already queued raise no event.
	Arm(solicitedOnly bool) error
	// FD returns a descriptor that is readable while an event is pending. The CQ owns it.
	FD() int
	// ReadEvent consumes the pending event, if any, and reports whether there
	// was one. It never blocks.
	ReadEvent() (bool, error)
	// Wait consumes one event. It sleeps in Go's poller until there is one or ctx is done. It
	// is an alternative to FD and ReadEvent, and must not be used concurrently with them.
	Wait(ctx context.Context) error
	Close() error
}

// Moderator is a CQ whose events can be delayed, so that one wake-up covers several
// completions. A CQ may implement it although its device has no moderation.
type Moderator interface {
	// Moderate delays the event requested by Arm until there are count completions, or until
	// period after the first of them, whichever is earlier. Zero for both ends moderation.
	// Otherwise count is 1 … 65535, and period is a whole number of microseconds up to
	// 65.535 ms. Polling is not delayed. The error wraps ErrUnsupported if the device has no
	// moderation.
	Moderate(count int, period time.Duration) error
}

// Reap waits until a completion queue has completions, and returns how many it has put in out. It polls
// the queue, arms it, polls it again, because what completes before that raises no event, and only then
// sleeps.
func Reap(ctx context.Context, cq CQ, out []Completion) (int, error) {
	for armed := false; ; armed = !armed {
		n, err := cq.Poll(out)
		if n != 0 || err != nil {
			return n, err
		}
		if armed {
			err = cq.Wait(ctx)
		} else {
			err = cq.Arm(false)
		}
		if err != nil {
			return 0, err
		}
	}
}

// RefusedError is the error of a post that the device has refused. Of a queue pair that has failed
// it is a consequence: some devices refuse such a post, others complete it as flushed.
type RefusedError struct {
	QPN   uint32
	Cause error
}

// Refused returns the error of a post to qp, nil if err is nil.
func Refused(qp QP, err error) error {
	if err == nil {
		return nil
	}
	return &RefusedError{qp.Num(), err}
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Cause.Error() }

// Unwrap returns the error of the device.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Consequence reports whether err can be the consequence of another failure of a queue pair, and
// returns the number of that.
func Consequence(err error) (qpn uint32, ok bool) {
	var wc *WCError
	var no *RefusedError
	switch {
	case errors.As(err, &wc):
		return wc.QPN, wc.Status == StatusWRFlushErr
	case errors.As(err, &no) && !errors.Is(err, ErrQueueFull):
		return no.QPN, true
	}
	return 0, false
}

package fabric

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrQueueFull is wrapped by the error of a post that found its work queue
	// full (ENOMEM of ibv_post_send(3)).
	ErrQueueFull = errors.New("work queue full")
	// ErrUnsupported is wrapped by errors about a feature that the device, or
	// the implementation, does not have.
	ErrUnsupported = errors.New("not supported by the device")
)

// Device is an RDMA device, opened.
type Device interface {
	// Name is the name of the RDMA device, such as rxe0 or mlx5_0.
	Name() string
	// Limits are fixed while the device is open.
	Limits() Limits
	// NewDomain allocates a protection domain: one per peer, so that a key of
	// one peer is worth nothing on a queue pair of another.
	NewDomain() (Domain, error)
	// Close closes the domains and then the device.
	Close() error
}

// Limits are the limits of a device that the upper layers have to respect.
type Limits struct {
	MaxQPWR     int // work requests in one work queue
	MaxCQE      int // entries in one completion queue
	CompVectors int // completion vectors: CQs can be spread over that many interrupts
	MaxMsg      int // bytes in one message
	MaxSGE      int // pieces that the data of one send request can lie in
	// MaxRdAtomic and MaxDestRdAtomic are the most that a queue pair can have of
	// its own reads, and of the peer's, outstanding.
	MaxRdAtomic     int
	MaxDestRdAtomic int
	Moderation      bool // completion queues can hold back events: they are Moderators
	Windows         bool // type-2 memory windows can be allocated
	// WindowBounds says that a window's own bounds are enforced. Soft-RoCE
	// checks only those of the region behind it.
	WindowBounds bool
	// NUMANode is the node of the machine that the device is on, from which its memory had
	// better come; -1 if it is on none, as Soft-RoCE, or the kernel names none.
	NUMANode int
}

// Access are the rights of a region beyond local read.
type Access uint8

const (
	LocalWrite  Access = 1 << iota // the device may write here for its own work requests
	RemoteWrite                    // the peer may write here with the region's key; needs LocalWrite
	WindowBind                     // windows may be bound to the region
	RemoteRead                     // the peer may read here with the region's key; no window gives that right
	// Relaxed is no right: until a work request has completed, what it writes here may be
	// seen in any order, also behind what later ones write. So nothing may be looked at
	// before the completion that is about it. Devices that cannot ignore it.
	Relaxed
)

// Domain is a protection domain and the owner of everything made through it.
type Domain interface {
	// Register makes mem known to the device. mem must lie outside the Go heap
	// (mmap), stay mapped until the region is closed, and belongs to the
	// caller throughout.
	Register(mem []byte, access Access) (Region, error)
	// NewWindow allocates an unbound type-2 memory window.
	NewWindow() (Window, error)
	// NewCQ makes a completion queue for at least depth completions, with its
	// events on the given completion vector (0 … Limits.CompVectors-1).
	NewCQ(depth, vector int) (CQ, error)
	// NewQP makes a queue pair in state INIT: receives can be posted, nothing
	// arrives before Connect.
	NewQP(QPConfig) (QP, error)
	Close() error
}

// Region is registered memory.
type Region interface {
	LKey() uint32 // for SendWR.LKey and RecvWR.LKey
	RKey() uint32 // for the peer's SendWR.RKey
	Addr() uint64 // virtual address of the first byte, the same for both sides
	Len() int
	// Close deregisters. It fails while a window is bound to the region.
	Close() error
}

// Window is a type-2 memory window: a key for part of a region that works on
// one queue pair only and can be withdrawn.
type Window interface {
	// RKey is the key of the latest bind, or that of the allocation. Each bind
	// counts its low eight bits up by one, with nothing carried (ibv_inc_rkey(3)),
	// so that whoever knows one key knows the next; until the queue pair that the
	// window is bound to is closed.
	RKey() uint32
	// Bound reports whether the window is bound: from a successful QP.Bind
	// until QP.Unbind, or until Invalidated is told about the peer's
	// invalidation.
	Bound() bool
	// Invalidated records that a completion with WithInv named this window.
	Invalidated()
	Close() error
}

// Transport is the service type of a queue pair.
type Transport uint8

const (
	RC Transport = iota + 1 // reliable connected: ordered, acknowledged
	UC                      // unreliable connected: ordered, may lose whole messages
)

// QPConfig describes a queue pair to be made.
type QPConfig struct {
	Transport Transport
	SendCQ    CQ
	RecvCQ    CQ
	MaxSend   int // send work requests outstanding
	MaxRecv   int // receive work requests outstanding
	MaxInline int // bytes that an Inline work request may carry
	MaxSGE    int // records of one send request, with More; 0 means 1

	// Reads outstanding (ibv_modify_qp(3)): this side's own, and those of the peer
	// that it answers at a time. With 0 this side posts none, and refuses the
	// peer's, whatever rights a region has. RC only. The peer's MaxDestRdAtomic must
	// not be less than MaxRdAtomic.
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8

	// How packets are marked, from Connect on. Devices without a notion of one
	// of these ignore it.
	TrafficClass uint8 // traffic class of IPv6, type of service of IPv4, of the GRH: DSCP and ECN
	ServiceLevel uint8 // of InfiniBand, 0 … 15; on RoCE the priority, unless the traffic class decides
	HopLimit     uint8 // routers that packets may cross; 0 means 64
}

// Address is what a peer must know of a queue pair to connect its own to it.
type Address struct {
	GID [16]byte // of the port; all zero on fabrics that address by LID only
	LID uint16
	QPN uint32 // 24 bits
	PSN uint32 // 24 bits, random: where this side's packet sequence starts
	MTU int    // bytes: the largest path MTU this side can use
}

// Timing are the connection's timers, in the encodings of ibv_modify_qp(3).
// The zero value of a field means its default.
type Timing struct {
	Timeout     uint8 // 4.096 µs × 2^Timeout before a retransmission; default 14 (67 ms)
	RetryCount  uint8 // 1 … 6 (7 means for ever on some devices); default 6
	RNRRetry    uint8 // 7 means for ever; default 7
	MinRNRTimer uint8 // default 12 (0.64 ms)
}

// WithDefaults returns t with its zero fields set.
func (t Timing) WithDefaults() Timing {
	if t.Timeout == 0 {
		t.Timeout = 14
	}
	if t.RetryCount == 0 {
		t.RetryCount = 6
	}
	if t.RNRRetry == 0 {
		t.RNRRetry = 7
	}
	if t.MinRNRTimer == 0 {
		t.MinRNRTimer = 12
	}
	return t
}

// QP is a queue pair, one end of a channel.
type QP interface {
	Num() uint32
	// Address is what the peer hands to its Connect. It does not change.
	Address() Address
	// Connect moves the queue pair from INIT over RTR to RTS. Both ends must
	// have done so before either sends: a message that reaches an end in INIT
	// is dropped and retried. The smaller of both MTUs is used.
	Connect(remote Address, t Timing) error
	// PostSend posts wrs in order with one doorbell and returns how many
	// records were taken; with an error, wrs[n] is the first record of the
	// first request that was refused.
	PostSend(wrs []SendWR) (n int, err error)
	// PostRecv posts wrs in order and returns how many were taken.
	PostRecv(wrs []RecvWR) (n int, err error)
	// Bind binds w to [addr, addr+length) of r through the send queue, for
	// remote write over this queue pair only, and returns the fresh key. The
	// key may be sent to the peer on this queue pair right behind. w must not
	// be bound.
	Bind(w Window, r Region, addr uint64, length int, id uint64, f Flags) (rkey uint32, err error)
	// BindSend is Bind, and behind it in the same post an OpSendImm without data
	// whose immediate data is the fresh key: the peer has the key when the window is
	// bound, and nobody waits for the bind in between. The bind has the identifier
	// bind and asks for no completion; the SEND has the identifier send, and f is
	// for it. A bind that fails fails the queue pair, and the SEND is flushed. With
	// an error the SEND is not posted; the bind may be, as Window.Bound says.
	BindSend(w Window, r Region, addr uint64, length int, bind, send uint64, f Flags) (rkey uint32, err error)
	// Unbind invalidates w through the send queue (LOCAL_INV). It refuses a
	// window that is not bound: invalidating one twice crashes Soft-RoCE.
	Unbind(w Window, id uint64, f Flags) error
	// Fail moves the queue pair to the error state: outstanding work requests
	// complete with StatusWRFlushErr, later sends do too.
	Fail() error
	// Failed asks the device whether the queue pair is in the error state. It
	// takes a system call and, on some devices, a command to the firmware.
	Failed() (bool, error)
	// Close destroys the queue pair. What it has not reported yet is lost.
	Close() error
}

// CQ is a completion queue with its own completion channel.
//
// To sleep without losing a wake-up: poll until empty, Arm, poll again, and
// only if still empty wait, by Wait or by poll(2) on FD followed by ReadEvent.
type CQ interface {
	// Poll moves up to len(out) completions to out and returns their number.
	// It never blocks.
	Poll(out []Completion) (int, error)
	// Arm asks for one event at the next completion, or at the next solicited
	// or failed one. Completions that are already queued raise none.
	Arm(solicitedOnly bool) error
	// FD becomes readable when an event is pending. It belongs to the CQ.
	FD() int
	// ReadEvent consumes the pending event, if any, and reports whether there
	// was one. It never blocks.
	ReadEvent() (bool, error)
	// Wait consumes one event, sleeping in Go's poller until there is one or
	// ctx is done. It is an alternative to FD and ReadEvent, not to be mixed
	// with them concurrently.
	Wait(ctx context.Context) error
	Close() error
}

// Moderator is a CQ whose events can be held back, so that one wake-up is for
// several completions. A CQ may implement it and still refuse.
type Moderator interface {
	// Moderate raises the event that was armed for when count completions have
	// come, or period after the first of them, whichever is earlier. Both 0
	// end that; otherwise count is 1 … 65535 and period up to 65.535 ms, in
	// whole microseconds. Completions can be polled as soon as ever. The error
	// wraps ErrUnsupported where the device has no moderation.
	Moderate(count int, period time.Duration) error
}

// DeadPeerTime is how long a sender with these timers takes to report a peer
// that does not answer: one time-out per try.
func (t Timing) DeadPeerTime() time.Duration {
	t = t.WithDefaults()
	return time.Duration(t.RetryCount+1) * (4096 * time.Nanosecond << t.Timeout)
}

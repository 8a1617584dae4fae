package fabrictest

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/inline"
)

// The objects of a network, which refer to each other.

// Network is a set of devices that can reach each other. Its methods may be
// called from any goroutine.
type Network struct {
	quietFlushes bool
	scale        float64
	limits       fabric.Limits
	adapter      Adapter
	mtu          atomic.Int64
	lastCQ       atomic.Uint32

	// keys guards every key table of the network. A delivery holds it for reading while it
	// copies, so that a region is no longer in use when its Close has returned. Lock order:
	// qp.sq, keys, qp.resp, qp.rq, cq.mu.
	keys sync.RWMutex

	mu      sync.Mutex // guards the following fields
	nodes   map[string]*node
	qps     map[qpKey]*qp
	lastQPN uint32
}

// qpKey identifies a queue pair on the network.
type qpKey struct {
	gid [16]byte
	qpn uint32
}

// node is the port with a given device name. Faults and counters belong to the node. A device
// that is opened twice is two devices on one node.
type node struct {
	name string
	gid  [16]byte

	cut   atomic.Bool
	stall atomic.Bool
	delay atomic.Int64 // nanoseconds
	hook  atomic.Pointer[Hook]

	refuseNext atomic.Bool
	dropUC     atomic.Int64
	largest    atomic.Int64 // bytes of a packet that gets through; 0: any
	overflow   atomic.Uint64
	commands   struct{ queryQP, queryPort, modifyQP atomic.Uint64 }

	mu      sync.Mutex
	removed bool
	devs    map[*device]struct{}
	past    Counters // counters of closed queue pairs
}

// late reports whether messages are queued instead of delivered at once.
func (nd *node) late() bool { return nd.stall.Load() || nd.delay.Load() != 0 }

// Hook is called before a work request is executed. If it returns a status other than
// StatusSuccess, the request fails with this status. It is called with locks held and must not
// call the fabric.
type Hook func(qpn uint32, wr fabric.SendWR) fabric.Status

// device is one opening of a node.
type device struct {
	net   *Network
	node  *node
	table keyTable // guarded by net.keys
	// inline finds what a queue pair gets, as package verbs does.
	inline inline.Limits

	gone   atomic.Bool       // the device was removed
	events chan fabric.Event // unread asynchronous events
	done   chan struct{}     // closed by Close

	mu      sync.Mutex
	closed  bool
	domains map[*domain]struct{}
}

// domain is a protection domain and the objects created in it.
type domain struct {
	dev *device

	mu      sync.Mutex
	closed  bool
	objects map[io.Closer]struct{} // those that are open
}

// region is a memory region.
type region struct {
	dom    *domain
	mem    []byte
	addr   uint64
	rkey   uint32
	access fabric.Access

	// Guarded by Network.keys.
	closed bool
	asked  int // number of windows with a bind to the region posted
	bound  int // number of windows that the device has bound to the region
}

// window has two states, which may differ for a while: the state after the requests that the
// owner has posted, and the state after the requests that the device has executed. Network.keys
// guards both.
type window struct {
	dom    *domain
	closed bool

	rkey        uint32  // key of the last posted bind
	askedRegion *region // region of the posted bind, nil if there is none
	askedQP     *qp

	qp *qp
	at *binding // nil while unbound in the device
	// last is the last binding, for faults that let it go on.
	last *binding
}

// binding has the parameters of a bind: window, key, rights, and range in the region.
type binding struct {
	window *window
	region *region
	key    uint32
	addr   uint64
	length uint64
	access fabric.Access
	late   atomic.Bool // the next access finds what was before: see LateWindowBind
}

// keyTable holds the keys of one device. Network.keys guards it.
type keyTable struct {
	base    uint32 // index of the first entry; random, so that keys of two devices differ
	entries []keyEntry
	free    []uint32 // indices into entries
}

type keyEntry struct {
	region *region
	window *window
	tag    uint8
}

// arming is the kind of completion that raises the next event.
type arming uint8

const (
	disarmed arming = iota
	armedSolicited
	armedAny
)

// cqe is a completion, with the slots that polling it frees.
type cqe struct {
	wc       fabric.Completion
	qp       *qp
	released uint64 // send completions: number of send requests done, including this one
}

// cq is a completion queue.
type cq struct {
	dom     *domain
	number  uint32
	depth   int
	failQPs func() // fails the queue pairs that use the completion queue

	mu         sync.Mutex // guards the following fields
	ring       []cqe
	head, tail uint64 // head ≤ tail; modulo len(ring) the indices to read and write
	arm        arming
	closed     bool
	overflowed bool
	events     int // events raised and not consumed
	useFD      bool
	fd         eventFD

	wake chan struct{} // one token: check events again
	done chan struct{} // closed by Close
	bg   sync.WaitGroup
}

// state of a queue pair. It never goes back.
type state = uint32

const (
	stateInit state = iota
	stateReady
	stateError
	stateClosed
)

// qp is a queue pair. Its three locks correspond to the three engines of a device: requester
// (sq), responder (resp) and the doorbell of the receive queue (rq). They are taken in that
// order. A goroutine holds at most one sq and one resp; the resp may be that of either end. qp
// has fields for all three engines, and a method for each step of them.
type qp struct {
	dom    *domain
	node   *node
	net    *Network
	cfg    fabric.QPConfig
	sendCQ *cq
	recvCQ *cq
	num    uint32
	psn    uint32
	mtu    int // the port's when it was created

	state  atomic.Uint32      // changed with resp and rq held
	peer   atomic.Pointer[qp] // found at the first message
	remote fabric.Address     // written once, before state becomes ready
	timing fabric.Timing

	sq       sync.Mutex
	posted   uint64        // number of send requests posted so far
	released atomic.Uint64 // number of send requests whose slots are free again
	pending  []work        // requests posted and not executed; a pump runs unless it is empty
	pumping  bool
	sent     Counters

	resp  sync.Mutex
	head  uint64 // next receive to use
	recvd Counters
	late  []lateWrite // with Adapter.LateWrites

	rq         sync.Mutex
	ring       []fabric.RecvWR
	tail       atomic.Uint64 // number of receives posted so far; written with rq held
	rqReleased atomic.Uint64 // number of receives whose completions were polled
	rnrWaiter  *qp           // sender to wake at the next receive

	wake  chan struct{} // one token: the pump has work
	pumps sync.WaitGroup
}

// work is a posted send request.
type work struct {
	fabric.SendWR
	more []fabric.SendWR // the pieces of its data after the first
	size uint32          // bytes of all pieces
	end  uint64          // number of send requests posted up to and including this one
	bind *binding        // of OpBind

	// Only for requests that have to wait.
	data      []byte    // with Inline: a copy of the bytes at the time of the post
	due       time.Time // earliest time of execution
	next      time.Time // when the next try counts
	rnrTries  int
	deadTries int
}

// lateWrite is a write that was executed and whose data is not visible yet.
type lateWrite struct {
	op   fabric.Opcode
	rkey uint32
	addr uint64
	data []byte
}

// closedErr returns the error of the use of a closed object: EIO if the device is removed.
func (d *device) closedErr() error {
	if d.gone.Load() {
		return unix.EIO
	}
	return net.ErrClosed
}

// refuse returns an error if the device is removed.
func (d *device) refuse(doing string) error {
	if d.gone.Load() {
		return fmt.Errorf("%s of %s: %w", doing, d.node.name, unix.EIO)
	}
	return nil
}

func (d *device) raise(ev fabric.Event) {
	select {
	case d.events <- ev:
	default:
	}
}

package fabrictest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// The objects of a network, which have each other as fields.

// Network is a set of devices that can reach each other. Its methods may be
// called from any goroutine.
type Network struct {
	quietFlushes bool
	scale        float64
	limits       fabric.Limits
	mtu          int

	// keys guards every key table of the network. A delivery holds it for
	// reading while it copies, so that a region is out of use when its Close
	// has returned. Order of locks: qp.sq, keys, qp.resp, qp.rq, cq.mu.
	keys sync.RWMutex

	mu      sync.Mutex // guards what follows
	nodes   map[string]*node
	qps     map[qpKey]*qp
	lastQPN uint32
}

// qpKey is what identifies a queue pair on the network.
type qpKey struct {
	gid [16]byte
	qpn uint32
}

// node is what a device name stands for: the port that faults and counters
// belong to. A device opened twice is two devices on one node.
type node struct {
	name string
	gid  [16]byte

	gate  atomic.Int32 // number of reasons to queue instead of delivering at once
	cut   atomic.Bool
	stall atomic.Bool
	delay atomic.Int64 // nanoseconds
	hook  atomic.Pointer[Hook]

	failPost atomic.Pointer[error]
	dropUC   atomic.Int64
	overflow atomic.Uint64

	mu   sync.Mutex
	devs map[*device]struct{}
	past Counters // of queue pairs that are closed
}

// Hook decides about one work request that is about to be carried out: with a
// status other than StatusSuccess it fails with that. It is called with locks
// held and must not call the fabric.
type Hook func(qpn uint32, wr fabric.SendWR) fabric.Status

// device is one opening of a node.
type device struct {
	net   *Network
	node  *node
	table keyTable // guarded by net.keys

	mu      sync.Mutex
	closed  bool
	domains map[*domain]struct{}
}

// domain is a protection domain and what was made in it.
type domain struct {
	dev *device

	mu      sync.Mutex
	closed  bool
	regions map[*region]struct{}
	windows map[*window]struct{}
	cqs     map[*cq]struct{}
	qps     map[*qp]struct{}
}

// region is a memory region.
type region struct {
	dom            *domain
	mem            []byte
	addr           uint64
	lkey, rkey     uint32
	mayWriteLocal  bool
	mayWriteRemote bool
	mayReadRemote  bool
	mayBind        bool

	// Guarded by Network.keys.
	closed bool
	asked  int // windows whose owner has them bound to the region
	bound  int // windows that the device has bound to it
}

// window has two states that are not the same at every moment: what its owner
// asked for, and what the device has carried out so far. Network.keys guards
// both.
type window struct {
	dom    *domain
	closed bool

	rkey        uint32  // of the latest bind that was asked for
	askedRegion *region // nil while no bind is
	askedQP     *qp

	region *region // nil while unbound in the device
	qp     *qp
	key    uint32
	addr   uint64
	length uint64
}

// binding says which part of which region a window is to stand for.
type binding struct {
	window *window
	region *region
	key    uint32
	addr   uint64
	length uint64
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

// arming is what raises the next event.
type arming uint8

const (
	disarmed arming = iota
	armedSolicited
	armedAny
)

// cqe is a completion with what polling it sets free.
type cqe struct {
	wc       fabric.Completion
	qp       *qp
	released uint64 // send completions: send requests done including this one
}

// cq is a completion queue.
type cq struct {
	dom     *domain
	depth   int
	failQPs func() // has the queue pairs fail that report to it

	mu         sync.Mutex // guards what follows
	ring       []cqe
	head, tail uint64 // head ≤ tail; modulo len(ring) the places to read and write
	arm        arming
	closed     bool
	overflowed bool
	events     int // raised and not consumed
	useFD      bool
	fd         eventFD

	wake chan struct{} // one token: look at events again
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

// qp is a queue pair. Its three locks stand for the three engines that a
// device has for it: requester (sq), responder (resp) and the doorbell of the
// receive queue (rq). They are taken in that order; a goroutine holds at most
// one sq and one resp, the latter of either end. It has fields for all three, and a method
// for each step of theirs.
type qp struct {
	dom    *domain
	node   *node
	net    *Network
	cfg    fabric.QPConfig
	sendCQ *cq
	recvCQ *cq
	num    uint32
	psn    uint32

	state  atomic.Uint32      // changed with resp and rq held
	peer   atomic.Pointer[qp] // found at the first message
	remote fabric.Address     // written once, before state becomes ready
	timing fabric.Timing

	sq       sync.Mutex
	posted   uint64        // send requests taken so far
	released atomic.Uint64 // send requests whose slots are free again
	pending  []work        // taken but not carried out: never empty without a pump running
	pumping  bool
	sent     Counters

	resp  sync.Mutex
	head  uint64 // next receive to use
	recvd Counters

	rq         sync.Mutex
	ring       []fabric.RecvWR
	tail       atomic.Uint64 // receives posted so far; written with rq held
	rqReleased atomic.Uint64 // receives whose completions were polled
	rnrWaiter  *qp           // sender to wake at the next receive

	wake  chan struct{} // one token: the pump has something to look at
	pumps sync.WaitGroup
}

// work is a send request that was taken.
type work struct {
	fabric.SendWR
	more []fabric.SendWR // the pieces of its data after the first
	size uint32          // bytes of all pieces
	end  uint64          // send requests taken up to and with this one
	bind *binding        // of OpBind

	// Only for requests that have to wait.
	data      []byte    // with Inline: the bytes as they were when posted
	due       time.Time // not before
	next      time.Time // when the next try counts
	rnrTries  int
	deadTries int
}

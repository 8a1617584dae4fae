package fabrictest

import (
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/numa"
)

// maxEvents is the number of unread asynchronous events of a device; further ones are lost.
const maxEvents = 1024

// Option is an option of New.
type Option func(*Network)

// WithTimeScale multiplies every time-out of the network. The default is 0.1: a dead
// peer is reported after some 47 ms with the default timing. Delays given to Network.Delay are not scaled.
func WithTimeScale(f float64) Option { return func(n *Network) { n.scale = f } }

// WithLimits sets the limits of the devices. Without Windows none can be
// allocated; without WindowBounds only a region's bounds are enforced, as on
// Soft-RoCE.
func WithLimits(l fabric.Limits) Option { return func(n *Network) { n.limits = l } }

// WithQuietFlushes makes flushed requests raise no event on a completion queue that is armed for
// solicited completions, as with Soft-RoCE of newer kernels (see conform.SoftRoCE).
func WithQuietFlushes() Option { return func(n *Network) { n.quietFlushes = true } }

// WithAdapter makes the devices behave like a.
func WithAdapter(a Adapter) Option { return func(n *Network) { n.adapter = a } }

// DefaultLimits returns the default limits of the devices of a network.
func DefaultLimits() fabric.Limits {
	return fabric.Limits{
		MaxQPWR:     16384,
		MaxCQE:      65536,
		CompVectors: 4,
		MaxMsg:      1 << 30,
		MaxSGE:      30,
		MaxRdAtomic: 128, MaxDestRdAtomic: 128,
		Windows:      true,
		WindowBounds: true,
		NUMANode:     numa.None,
	}
}

// New returns an empty network.
func New(opts ...Option) *Network {
	n := &Network{
		scale:   0.1,
		limits:  DefaultLimits(),
		nodes:   make(map[string]*node),
		qps:     make(map[qpKey]*qp),
		lastQPN: 0x10 + rand.Uint32N(0x1000),
	}
	n.SetMTU(4096)
	for _, o := range opts {
		o(n)
	}
	return n
}

// Device opens the device with the given name, and creates it first if there is none. A device
// that is opened twice, or again after Kill, has the same GID.
func (n *Network) Device(name string) fabric.Device {
	d, err := n.Open(name)
	if err != nil {
		panic(err) // a mistake in the test
	}
	return d
}

// Open opens the device with the given name like Device. It fails with ENODEV while the device
// is removed, and with Adapter.NoOpen.
func (n *Network) Open(name string) (fabric.Device, error) {
	nd := n.node(name)
	d := &device{
		net: n, node: nd, domains: make(map[*domain]struct{}),
		events: make(chan fabric.Event, maxEvents), done: make(chan struct{}),
	}
	d.table.init()
	if no := n.adapter.NoOpen; no != nil {
		return nil, fmt.Errorf("opening %s: %w", name, no)
	}
	nd.mu.Lock()
	defer nd.mu.Unlock()
	if nd.removed {
		return nil, fmt.Errorf("opening %s: %w", name, unix.ENODEV)
	}
	nd.devs[d] = struct{}{}
	return d, nil
}

func (n *Network) node(name string) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if nd, ok := n.nodes[name]; ok {
		return nd
	}
	nd := &node{name: name, devs: make(map[*device]struct{})}
	// The GID is an IPv4-mapped address of 10.0.0.0/8, as with RoCE v2.
	i := len(n.nodes) + 1
	nd.gid = [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
	n.nodes[name] = nd
	return nd
}

// known returns the node with the given name. It panics if the device was never opened, which is
// a mistake in the test.
func (n *Network) known(name string) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	nd, ok := n.nodes[name]
	if !ok {
		panic(fmt.Sprintf("fabrictest: the network has no device %q", name))
	}
	return nd
}

// SetMTU changes the path MTU in bytes that the devices offer, at first 4096. That of existing queue pairs stays.
func (n *Network) SetMTU(bytes int) { n.mtu.Store(int64(bytes)) }

// add assigns a number to q and makes q reachable.
func (n *Network) add(q *qp) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastQPN = (n.lastQPN + 1) & 0xffffff
	q.num = n.lastQPN
	n.qps[qpKey{q.node.gid, q.num}] = q
}

func (n *Network) remove(q *qp) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.qps, qpKey{q.node.gid, q.num})
}

func (n *Network) lookup(gid [16]byte, qpn uint32) *qp {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.qps[qpKey{gid, qpn}]
}

func (n *Network) hasGID(gid [16]byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, nd := range n.nodes {
		if nd.gid == gid {
			return true
		}
	}
	return false
}

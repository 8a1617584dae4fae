package hosts

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// portsOf makes a network card with ports of this kind. It returns the card, and a function that
// removes the card. Ports that cost nothing are added to noted.
func portsOf(kind string, noted *sinks) (ports, func() error, error) {
	switch kind {
	case noPorts:
		return ports{
			open:  func(mac net.HardwareAddr, _ int) (lan.Interface, error) { return noted.open(mac) },
			state: func() (lan.LinkState, error) { return steady, nil },
		}, func() error { return nil }, nil
	case macvtapPorts:
		return cardPorts()
	default:
		return ports{}, nil, fmt.Errorf("-ports %s: use %s or %s", kind, macvtapPorts, noPorts)
	}
}

// nic is the name of the network card. The other end of its cable is in the same namespace.
const nic = "eth1"

// cardPorts makes a network card in a network namespace.
func cardPorts() (ports, func() error, error) {
	ns := fmt.Sprintf("snmany%d", os.Getpid())
	if err := netns.New(ns); err != nil {
		return ports{}, nil, err
	}
	if err := cable(ns); err != nil {
		return ports{}, nil, errors.Join(err, netns.Delete(ns))
	}
	card, err := lan.NewCard("macvtap:"+nic, ns)
	if err != nil {
		return ports{}, nil, errors.Join(err, netns.Delete(ns))
	}
	return ports{
		open: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return card.Open(lan.Config{MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		},
		state: func() (lan.LinkState, error) {
			info, err := card.Info()
			return info.LinkState, err
		},
	}, func() error { return netns.Delete(ns) }, nil
}

// cable makes the card, which is up and has a carrier.
func cable(ns string) error {
	h, err := netns.Handle(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = nic
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "lan0"}); err != nil {
		return fmt.Errorf("making a network card: %w", err)
	}
	for _, name := range []string{nic, "lan0"} {
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

// steady is the state of a card whose ports cost nothing.
var steady = lan.LinkState{Up: true, MTU: 1500, Speed: 10000}

// null is a queue that accepts and counts all frames. Frames can be read from it only during a
// flood, or after send.
type null struct {
	fd    int
	close sync.Once
	flood atomic.Pointer[[]byte] // the frame that is read without end; nil: no flood
	taken atomic.Uint64
	heard atomic.Pointer[func(*vnet.WriteOp)] // called with each accepted frame

	single sync.Mutex             // held while the event is raised or lowered for a single frame
	once   atomic.Pointer[[]byte] // the single frame that is read next
}

func newNull() (*null, error) {
	// The eventfd is readable only while there are frames to read, and always writable.
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return &null{fd: fd}, os.NewSyscallError("eventfd", err)
}

// begin starts a flood: the frame can be read without end. end stops the flood.
func (n *null) begin(frame []byte) error {
	n.flood.Store(&frame)
	return n.raise()
}

func (n *null) end() error {
	n.flood.Store(nil)
	return n.lower()
}

// send makes one frame readable. The frame of the previous send must have been read.
func (n *null) send(frame []byte) error {
	n.single.Lock()
	defer n.single.Unlock()
	n.once.Store(&frame)
	return n.raise()
}

// take returns the frame of the last send, unless it has been read.
func (n *null) take() ([]byte, error) {
	if n.once.Load() == nil {
		return nil, nil
	}
	n.single.Lock()
	defer n.single.Unlock()
	return *n.once.Swap(nil), n.lower()
}

func (n *null) raise() error {
	_, err := unix.Write(n.fd, binary.NativeEndian.AppendUint64(nil, 1))
	return os.NewSyscallError("write", err)
}

func (n *null) lower() error {
	var b [8]byte
	_, err := unix.Read(n.fd, b[:])
	return os.NewSyscallError("read", err)
}

var errAgain error = unix.EAGAIN

func (n *null) FD() int                          { return n.fd }
func (n *null) WriteFD() int                     { return n.fd }
func (n *null) ReadFrame([]byte) ([]byte, error) { return nil, errAgain }
func (n *null) WriteFrame([]byte) error          { return nil }
func (n *null) WriteParts([]byte, []byte) error  { return nil }

func (n *null) WriteFrames(ops []vnet.WriteOp) int {
	clearErrs(ops)
	n.taken.Add(uint64(len(ops)))
	if f := n.heard.Load(); f != nil {
		for i := range ops {
			(*f)(&ops[i])
		}
	}
	return len(ops)
}

func (n *null) ReadFrames(ops []vnet.ReadOp) int {
	if frame, err := n.take(); frame != nil {
		ops[0].Frame, ops[0].Err = ops[0].Slot[:copy(ops[0].Slot, frame)], err
		return 1
	}
	frame := n.flood.Load()
	if frame == nil {
		ops[0].Frame, ops[0].Err = nil, errAgain
		return 1
	}
	for i := range ops {
		ops[i].Frame, ops[i].Err = ops[i].Slot[:copy(ops[i].Slot, *frame)], nil
	}
	return len(ops)
}

func (n *null) Close() (err error) {
	n.close.Do(func() { err = unix.Close(n.fd) })
	return err
}

func clearErrs(ops []vnet.WriteOp) {
	for i := range ops {
		ops[i].Err = nil
	}
}

// port is a port that costs nothing.
type port struct {
	queue *null
	mac   net.HardwareAddr
}

var _ lan.Interface = (*port)(nil)

// sinks has the ports that cost nothing. Each was opened for a host's session.
type sinks struct {
	mu  sync.Mutex
	all []*port
}

func (s *sinks) open(mac net.HardwareAddr) (*port, error) {
	q, err := newNull()
	if err != nil {
		return nil, err
	}
	p := &port{q, mac}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, p)
	return p, nil
}

// taken returns how many frames each port has accepted.
func (s *sinks) taken() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := make([]uint64, len(s.all))
	for i, p := range s.all {
		n[i] = p.queue.taken.Load()
	}
	return n
}

func (p *port) Name() string                                       { return "none" }
func (p *port) Queues() []lan.Queue                                { return []lan.Queue{p.queue} }
func (p *port) MAC() net.HardwareAddr                              { return p.mac }
func (p *port) SetMAC(mac net.HardwareAddr) error                  { p.mac = mac; return nil }
func (p *port) State() (lan.LinkState, error)                      { return steady, nil }
func (p *port) Offloads() vnet.Offloads                            { return vnet.AllOffloads }
func (p *port) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) { return o, nil }
func (p *port) Floods() bool                                       { return false }
func (p *port) EarlyDiscard() discard.Status                       { return discard.Status{} }
func (p *port) SetUp(bool) error                                   { return nil }
func (p *port) SetPromisc(bool) error                              { return nil }
func (p *port) SetAllMulti(bool) error                             { return nil }
func (p *port) SetMulticast([]net.HardwareAddr) error              { return nil }
func (p *port) SetUnicast([]net.HardwareAddr) error                { return nil }
func (p *port) Announce([]byte) error                              { return nil }
func (p *port) Stats() lan.Stats                                   { return lan.Stats{} }
func (p *port) Close() error                                       { return p.queue.Close() }
func (p *port) Watch(ctx context.Context, fn func(lan.LinkState)) error {
	fn(steady)
	<-ctx.Done()
	return nil
}

// netdev is a host's netdevice that costs nothing.
type netdev struct {
	port *null

	mu    sync.Mutex
	state tap.State
}

var _ host.Netdevice = (*netdev)(nil)

func newNetdev() (*netdev, error) {
	q, err := newNull()
	if err != nil {
		return nil, err
	}
	return &netdev{port: q, state: tap.State{Up: true, MTU: 1500}}, nil
}

func (d *netdev) set(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	return nil
}

func (d *netdev) Name() string                                       { return "none" }
func (d *netdev) Ports() []messaging.Port                            { return []messaging.Port{d.port} }
func (d *netdev) SetActive(int) error                                { return nil }
func (d *netdev) SetCarrier(bool) error                              { return nil }
func (d *netdev) EarlyDiscard() discard.Status                       { return discard.Status{} }
func (d *netdev) Solicit(context.Context) error                      { return nil }
func (d *netdev) SetMAC(mac net.HardwareAddr) error                  { return d.set(func() { d.state.MAC = mac }) }
func (d *netdev) SetMTU(mtu int) error                               { return d.set(func() { d.state.MTU = mtu }) }
func (d *netdev) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) { return o, nil }
func (d *netdev) SetSpeed(int) error                                 { return nil }
func (d *netdev) SetPromisc(bool) error                              { return nil }
func (d *netdev) SetAllMulti(bool) error                             { return nil }

func (d *netdev) State() (tap.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state, nil
}

func (d *netdev) Watch(ctx context.Context, fn func(tap.State)) error {
	s, _ := d.State()
	fn(s)
	<-ctx.Done()
	return nil
}

// The kinds of ports.
const (
	macvtapPorts = "macvtap"
	noPorts      = "none"
)

// ports has the functions by which the I/O unit uses its network card.
type ports struct {
	open  func(mac net.HardwareAddr, queues int) (lan.Interface, error)
	state func() (lan.LinkState, error)
}

// of returns the queue of the latest port with this address, or nil.
func (s *sinks) of(mac []byte) *null {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.all) - 1; i >= 0; i-- {
		if bytes.Equal(s.all[i].mac, mac) {
			return s.all[i].queue
		}
	}
	return nil
}

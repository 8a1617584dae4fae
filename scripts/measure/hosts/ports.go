package hosts

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// null is a queue that costs nothing. It accepts and counts all frames. Frames can be read from it
// only during a flood.
type null struct {
	event *epoll.Event
	close sync.Once
	flood atomic.Pointer[[]byte] // the frame that is read without end; nil: no flood
	taken atomic.Uint64
}

func newNull() (*null, error) {
	event, err := epoll.NewEvent()
	return &null{event: event}, err
}

// begin starts a flood of frames of 64 bytes to nobody.
func (n *null) begin(from net.HardwareAddr) {
	frame := make([]byte, vnet.HdrLen+64)
	copy(frame[vnet.HdrLen:], []byte{2, 0xff, 0, 0, 0, 1})
	copy(frame[vnet.HdrLen+6:], from)
	copy(frame[vnet.HdrLen+12:], []byte{0x88, 0xb5}) // IEEE 802, for experiments
	n.flood.Store(&frame)
	n.event.Set()
}

var errAgain error = unix.EAGAIN

func (n *null) FD() int      { return n.event.FD() }
func (n *null) WriteFD() int { return n.event.FD() } // never waited for

func (n *null) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = nil
	}
	n.taken.Add(uint64(len(ops)))
	return len(ops)
}

func (n *null) ReadFrames(ops []vnet.ReadOp) int {
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
	n.close.Do(func() { err = n.event.Close() })
	return err
}

// steady is the state of a card whose ports cost nothing.
var steady = lan.LinkState{Up: true, MTU: 1500, Speed: 10000}

// device is what a port and a netdevice that cost nothing have in common.
type device struct {
	*null
	mu  sync.Mutex
	mac net.HardwareAddr
}

func newDevice(mac net.HardwareAddr) (*device, error) {
	q, err := newNull()
	return &device{null: q, mac: mac}, err
}

func (d *device) MAC() net.HardwareAddr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mac
}

func (d *device) SetMAC(mac net.HardwareAddr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mac = mac
	return nil
}

func (d *device) Name() string                                       { return "none" }
func (d *device) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) { return o, nil }
func (d *device) EarlyDiscard() discard.Status                       { return discard.Status{} }
func (d *device) SetPromisc(bool) error                              { return nil }
func (d *device) SetAllMulti(bool) error                             { return nil }

// port is a port that costs nothing.
type port struct{ *device }

var _ lan.Interface = port{}

func (p port) Queues() []lan.Queue                   { return []lan.Queue{p.null} }
func (p port) State() (lan.LinkState, error)         { return steady, nil }
func (p port) Offloads() vnet.Offloads               { return vnet.AllOffloads }
func (p port) Floods() bool                          { return false }
func (p port) SetUp(bool) error                      { return nil }
func (p port) SetMulticast([]net.HardwareAddr) error { return nil }
func (p port) SetUnicast([]net.HardwareAddr) error   { return nil }
func (p port) Announce([]byte) error                 { return nil }
func (p port) Stats() lan.Stats                      { return lan.Stats{} }
func (p port) Watch(ctx context.Context, fn func(lan.LinkState)) error {
	fn(steady)
	<-ctx.Done()
	return nil
}

// netdev is a host's netdevice that costs nothing.
type netdev struct{ *device }

var _ host.Netdevice = netdev{}

func (d netdev) Ports() []messaging.Port       { return []messaging.Port{d.null} }
func (d netdev) SetActive(int) error           { return nil }
func (d netdev) SetCarrier(bool) error         { return nil }
func (d netdev) Solicit(context.Context) error { return nil }
func (d netdev) SetMTU(int) error              { return nil }
func (d netdev) SetSpeed(int) error            { return nil }
func (d netdev) State() (tap.State, error) {
	return tap.State{Up: true, MTU: 1500, MAC: d.MAC()}, nil
}

func (d netdev) Watch(ctx context.Context, fn func(tap.State)) error {
	s, _ := d.State()
	fn(s)
	<-ctx.Done()
	return nil
}

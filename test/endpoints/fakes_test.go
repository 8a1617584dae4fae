package endpoints

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// netdev is a host's netdevice without a kernel behind it.
type netdev struct {
	port *porttest.Port
	wire *porttest.Wire

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	carrier bool
	speed   int // Mbit/s; -1 until it is set
	raised  int // how many times the carrier was set
	lost    int // how many times the carrier was lost
	mac     string
	mtu     int
	active  int
	want    tap.State // except MAC and MTU
	// onCarrier, if set, is called before the carrier changes.
	onCarrier func(up bool)
	// onChange, if set, is called with each change of the address, the MTU and the
	// carrier, with mu held.
	onChange func()
	// onSolicit, if set, is what Solicit does.
	onSolicit func(context.Context)
}

func newNetdev(t *testing.T) *netdev {
	p, w := porttest.New(t, 1<<20)
	return &netdev{port: p, wire: w, changed: make(chan struct{}), speed: -1, want: tap.State{Up: true}}
}

func (d *netdev) set(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

func (d *netdev) change(f func()) error {
	return d.set(func() {
		f()
		if d.onChange != nil {
			d.onChange()
		}
	})
}

func (d *netdev) Name() string            { return "test0" }
func (d *netdev) Ports() []messaging.Port { return []messaging.Port{porttest.Batched{Single: d.port}} }
func (d *netdev) SetActive(n int) error   { return d.set(func() { d.active = n }) }
func (d *netdev) SetMAC(mac net.HardwareAddr) error {
	return d.change(
		func() { d.mac = mac.String() })
}
func (d *netdev) SetMTU(mtu int) error                               { return d.change(func() { d.mtu = mtu }) }
func (d *netdev) SetSpeed(mbit int) error                            { return d.set(func() { d.speed = mbit }) }
func (d *netdev) EarlyDiscard() discard.Status                       { return discard.Status{On: true} }
func (d *netdev) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) { return o, nil }

// losses returns how many times the carrier was lost.
func (d *netdev) losses() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

func (d *netdev) SetCarrier(up bool) error {
	d.mu.Lock()
	hook := d.onCarrier
	d.mu.Unlock()
	if hook != nil {
		hook(up)
	}
	return d.change(func() {
		if d.carrier && !up {
			d.lost++
		}
		d.carrier = up
		if up {
			d.raised++
		}
	})
}

func (d *netdev) Solicit(ctx context.Context) error {
	if d.onSolicit != nil {
		d.onSolicit(ctx)
	}
	return nil
}

func (d *netdev) SetPromisc(on bool) error {
	return d.set(func() { d.want.Promisc, d.want.PromiscSet = on, on })
}
func (d *netdev) SetAllMulti(on bool) error {
	return d.set(func() { d.want.AllMulti, d.want.AllMultiSet = on, on })
}

func (d *netdev) State() (tap.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.want
	s.MAC, _ = net.ParseMAC(d.mac) // nil if the netdevice has no address yet
	s.MTU = d.mtu
	return s, nil
}

func (d *netdev) Watch(ctx context.Context, fn func(tap.State)) error {
	for {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		s, _ := d.State()
		fn(s)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// await waits until cond, which is called with mu held, returns true.
func (d *netdev) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.After(testenv.Patience)
	for {
		d.mu.Lock()
		ok, changed := cond(), d.changed
		d.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("waited in vain for %s: carrier %v, mac %s, mtu %d", what, d.carrier, d.mac, d.mtu)
		}
	}
}

func (d *netdev) up(t *testing.T) {
	t.Helper()
	d.await(t, "carrier", func() bool { return d.carrier })
}
func (d *netdev) down(t *testing.T) {
	t.Helper()
	d.await(t, "no carrier", func() bool { return !d.carrier })
}

var _ host.Netdevice = (*netdev)(nil)

// card is a network card without a kernel behind it: every port that is opened on it has its own
// wire.
type card struct {
	t     *testing.T
	mu    sync.Mutex
	state lan.LinkState
	watch map[*lanPort]chan lan.LinkState
	ports map[string]*lanPort // by MAC address
	opens int
	heard [][]byte // announcements

	changes int // calls of SetMAC and SetUp of all ports
	// onOpen, if set, is called for each port that is opened, with mu held.
	onOpen func(mac string, wire *porttest.Wire)
}

func newCard(t *testing.T) *card {
	return &card{
		t: t, state: lan.LinkState{Up: true, MTU: 1500, Speed: 10000},
		watch: map[*lanPort]chan lan.LinkState{}, ports: map[string]*lanPort{},
	}
}

func (c *card) open(mac net.HardwareAddr, _ int) (lan.Interface, error) {
	p, w := porttest.New(c.t, 1<<20)
	lp := &lanPort{card: c, queue: p, wire: w, mac: mac}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports[mac.String()] = lp
	c.opens++
	if c.onOpen != nil {
		c.onOpen(mac.String(), w)
	}
	return lp, nil
}

func (c *card) announced(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, slices.Clone(frame))
	return nil
}

func (c *card) link() (lan.LinkState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, nil
}

// change changes the state of the card and sends it to all watchers.
func (c *card) change(f func(*lan.LinkState)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.state)
	for _, w := range c.watch {
		w <- c.state
	}
}

func (c *card) wire(mac string) *porttest.Wire {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.ports[mac]
	if p == nil {
		c.t.Fatalf("no port has address %s", mac)
	}
	return p.wire
}

// hang delays Close of the port with this address until the channel is closed.
func (c *card) hang(mac string, until <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports[mac].hangs = until
}

// isUp reports whether there is a port with this address that is up.
func (c *card) isUp(mac string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.ports[mac]
	return p != nil && !p.down
}

// announcements returns the frames that announced the addresses of hosts to the LAN.
func (c *card) announcements() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.heard)
}

func (c *card) open1() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ports)
}

// lanQueue is the queue of a lanPort.
type lanQueue struct{ *porttest.Port }

func (q lanQueue) WriteFD() int { return q.FD() }

func (q lanQueue) ReadFrames(ops []vnet.ReadOp) int {
	for i := range ops {
		ops[i].Frame, ops[i].Err = q.ReadFrame(ops[i].Slot)
		if errors.Is(ops[i].Err, unix.EAGAIN) {
			return i + 1
		}
	}
	return len(ops)
}

func (q lanQueue) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		if ops[i].Err = q.WriteFrame(slices.Concat(ops[i].Head, ops[i].Rest)); errors.Is(ops[i].Err, unix.EAGAIN) {
			return i
		}
	}
	return len(ops)
}

// lanPort is one host's port on the card.
type lanPort struct {
	card  *card
	queue *porttest.Port
	wire  *porttest.Wire
	mac   net.HardwareAddr
	down  bool
	hangs <-chan struct{} // Close waits until this is closed, unless it is nil
}

func (p *lanPort) Queues() []lan.Queue           { return []lan.Queue{lanQueue{p.queue}} }
func (p *lanPort) State() (lan.LinkState, error) { return p.card.link() }
func (p *lanPort) Offloads() vnet.Offloads       { return vnet.AllOffloads }
func (p *lanPort) SetPromisc(bool) error         { return nil }
func (p *lanPort) Floods() bool                  { return false }
func (p *lanPort) EarlyDiscard() discard.Status  { return discard.Status{On: true} }
func (p *lanPort) SetAllMulti(bool) error        { return nil }
func (p *lanPort) Stats() lan.Stats              { return lan.Stats{} }
func (p *lanPort) Announce(frame []byte) error   { return p.card.announced(frame) }

func (p *lanPort) MAC() net.HardwareAddr {
	p.card.mu.Lock()
	defer p.card.mu.Unlock()
	return p.mac
}

func (p *lanPort) Name() string { return "lan-" + p.MAC().String() }

func (p *lanPort) SetMAC(mac net.HardwareAddr) error {
	p.card.mu.Lock()
	defer p.card.mu.Unlock()
	if p.card.ports[p.mac.String()] == p {
		delete(p.card.ports, p.mac.String())
	}
	p.mac = slices.Clone(mac)
	p.card.ports[p.mac.String()] = p
	p.card.changes++
	return nil
}

func (p *lanPort) SetUp(up bool) error {
	p.card.mu.Lock()
	defer p.card.mu.Unlock()
	p.card.changes++
	p.down = !up
	return nil
}

func (p *lanPort) SetMulticast([]net.HardwareAddr) error { return nil }
func (p *lanPort) SetUnicast([]net.HardwareAddr) error   { return nil }
func (p *lanPort) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) {
	return o, nil
}

func (p *lanPort) Watch(ctx context.Context, fn func(lan.LinkState)) error {
	states := make(chan lan.LinkState, 16) // more changes than a test makes
	p.card.mu.Lock()
	p.card.watch[p] = states
	states <- p.card.state
	p.card.mu.Unlock()
	defer func() {
		p.card.mu.Lock()
		delete(p.card.watch, p)
		p.card.mu.Unlock()
	}()
	for {
		select {
		case now := <-states:
			fn(now)
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *lanPort) Close() error {
	p.card.mu.Lock()
	hangs := p.hangs
	p.card.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	p.card.mu.Lock()
	if p.card.ports[p.mac.String()] == p {
		delete(p.card.ports, p.mac.String())
	}
	p.card.mu.Unlock()
	return p.queue.Close()
}

var _ lan.Interface = (*lanPort)(nil)

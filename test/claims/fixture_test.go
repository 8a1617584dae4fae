package claims

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/verbs"
	"github.com/splitnic/splitnic/vnet"
	"github.com/splitnic/splitnic/vnet/frametest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The two sides of every test.
const (
	hostSide = "host"
	unitSide = "I/O unit"
)

var sides = []string{hostSide, unitSide}

// other returns the peer of a side.
func other(side string) string {
	if side == hostSide {
		return unitSide
	}
	return hostSide
}

// fabricOf has a fabric, and the configuration of the endpoints on it where a test does not set
// its own.
type fabricOf struct {
	// open opens the host's and the I/O unit's device. The caller has the test close them.
	open func(t testing.TB) (host, iounit fabric.Device)
	// plain is a setting without packs, where only the region protects memory. Otherwise packs and
	// protection have the product's defaults.
	plain bool
}

// inMemory runs a test on a fabric in memory, in each setting.
func inMemory(t *testing.T, test func(*testing.T, fabricOf)) { inEachSetting(t, memory, test) }

// onSoftRoCE runs a test on two Soft-RoCE devices, in each setting.
func onSoftRoCE(t *testing.T, test func(*testing.T, fabricOf)) { inEachSetting(t, softRoCE, test) }

func inEachSetting(
	t *testing.T, open func(testing.TB) (fabric.Device, fabric.Device), test func(*testing.T, fabricOf),
) {
	t.Run("plain", func(t *testing.T) { test(t, fabricOf{open: open, plain: true}) })
	t.Run("defaults", func(t *testing.T) { test(t, fabricOf{open: open}) })
}

// configure applies the setting to the configuration of an endpoint. In the product the handshake
// negotiates the features that both endpoints support.
func (on fabricOf) configure(c *messaging.Config) {
	c.NoPack = on.plain
	switch {
	case c.Protection != "":
	case on.plain:
		c.Protection = messaging.ProtectRegion
	default:
		c.OneTouch, c.Invalidation = true, c.Device.Limits().Windows
	}
}

// badBind returns the completion status with which a device refuses a bind.
func badBind(t *testing.T, d fabric.Device) fabric.Status {
	driver := ""
	if v, ok := d.(*verbs.Context); ok {
		driver = v.Driver()
	}
	traits, err := conform.TraitsOf(driver, testenv.KernelRelease(t), d.Limits())
	if err != nil {
		t.Fatal(err)
	}
	return cmp.Or(traits.BadBind, fabric.StatusMWBindErr)
}

// memory opens two devices on a fabric in memory.
func memory(t testing.TB) (fabric.Device, fabric.Device) {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	return n.Device("host"), n.Device("unit")
}

// softRoCE opens two Soft-RoCE devices through libibverbs. A bridge connects them.
func softRoCE(t testing.TB) (fabric.Device, fabric.Device) {
	names := testenv.NeedRDMA(t, 2)
	var devs [2]fabric.Device
	for i := range devs {
		d, err := verbs.Open(names[1-i])
		if err != nil {
			t.Fatal(err)
		}
		devs[i] = d
	}
	return devs[0], devs[1]
}

// openDevices opens the devices of a fabric, and wraps them so that a trace records their use.
func openDevices(t testing.TB, on fabricOf) (*trace, map[string]fabric.Device) {
	t.Helper()
	tp := &trace{}
	h, u := on.open(t)
	devs := map[string]fabric.Device{
		hostSide: &recorder{Device: h, trace: tp, side: hostSide},
		unitSide: &recorder{Device: u, trace: tp, side: unitSide},
	}
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), u.Close()); err != nil {
			t.Error(err)
		}
	})
	return tp, devs
}

// endpoint is one side of a session of the messaging layer.
type endpoint struct {
	name  string
	conn  *messaging.Conn
	wires []*porttest.Wire // the far ends of its ports
	ports []messaging.Port
}

// pair is a session of two endpoints on recorded devices.
type pair struct {
	*observed
	devices   map[string]fabric.Device
	endpoints map[string]*endpoint
	frame     uint64 // number of the last frame, which makes each frame unique
}

// newEndpoints makes two endpoints that are not connected.
func newEndpoints(t testing.TB, on fabricOf, cfg map[string]messaging.Config) *pair {
	t.Helper()
	tp, devs := openDevices(t, on)
	p := &pair{devices: devs, endpoints: make(map[string]*endpoint)}
	p.observed = &observed{trace: tp, t: t, qpns: make(map[string][]uint32), until: p.poll}
	for _, side := range sides {
		h, c := &endpoint{name: side}, cfg[side]
		for range max(c.Queues, 1) {
			port, wire := porttest.New(t, 1<<20)
			h.ports, h.wires = append(h.ports, porttest.Batched{Single: port}), append(h.wires, wire)
		}
		c.Device, c.PeerTimeout = devs[side], max(c.PeerTimeout, time.Minute)
		c.FlushTime = time.Minute
		on.configure(&c)
		conn, err := messaging.New(c)
		if err != nil {
			t.Fatalf("%s: %v", side, err)
		}
		h.conn = conn
		p.endpoints[side] = h
		for _, a := range conn.Addresses() {
			p.qpns[side] = append(p.qpns[side], a.QPN)
		}
		t.Cleanup(func() {
			if err := conn.Close(); err != nil {
				t.Errorf("%s: close: %v", side, err)
			}
		})
	}
	return p
}

// newPair makes a session and starts it. Both sides have the same configuration.
func newPair(t testing.TB, on fabricOf, cfg messaging.Config) *pair {
	t.Helper()
	p := newEndpoints(t, on, map[string]messaging.Config{hostSide: cfg, unitSide: cfg})
	p.connect()
	p.start()
	return p
}

// connect associates the queue pairs of both sides.
func (p *pair) connect() {
	p.t.Helper()
	for _, side := range sides {
		peer := p.endpoints[other(side)].conn
		if err := p.endpoints[side].conn.Connect(peer.Addresses(), peer.ControlReceives()); err != nil {
			p.t.Fatalf("%s: %v", side, err)
		}
	}
}

// start starts both endpoints, and waits until each one has elements that its peer has lent on
// every channel.
func (p *pair) start() {
	p.t.Helper()
	for _, side := range sides {
		if err := p.endpoints[side].conn.Start(p.endpoints[side].ports); err != nil {
			p.t.Fatalf("%s: %v", side, err)
		}
	}
	for _, side := range sides {
		p.until(func() error {
			for _, c := range p.endpoints[side].conn.Stats().Channels {
				if c.Remote.Elements == 0 {
					return fmt.Errorf("nothing is lent to the %s: %+v", side, c)
				}
			}
			return nil
		})
	}
}

// poll calls cond again and again until it returns nil. The test fails if a session ends before.
func (p *pair) poll(cond func() error) {
	p.t.Helper()
	poll(p.t, func() error {
		err := cond()
		for _, h := range p.endpoints {
			if err != nil && h.conn.Err() != nil {
				p.t.Fatalf("%s: the session has ended: %v", h.name, h.conn.Err())
			}
		}
		return err
	})
}

func poll(t testing.TB, cond func() error) {
	t.Helper()
	ctx := deadline(t)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), testenv.Patience,
		errors.New("waited in vain"))
	t.Cleanup(cancel)
	return ctx
}

// alive returns a context that ends in a minute, or with either side's session.
func (p *pair) alive() context.Context {
	ctx, cancel := context.WithCancelCause(deadline(p.t))
	h, u := p.endpoints[hostSide].conn, p.endpoints[unitSide].conn
	go func() {
		select {
		case <-h.Done():
			cancel(fmt.Errorf("the host's session has ended: %w", h.Err()))
		case <-u.Done():
			cancel(fmt.Errorf("the I/O unit's session has ended: %w", u.Err()))
		case <-ctx.Done():
			cancel(nil)
		}
	}()
	return ctx
}

// newFrame returns a frame of n bytes, virtio_net_hdr included, that differs from every other one.
// A frame over the MTU of 1500 is a TCP super-frame if n is at most 65535.
func (p *pair) newFrame(n int) []byte {
	p.frame++
	f := make([]byte, n)
	frametest.Fill(f[vnet.HdrLen:], p.frame)
	eth := f[vnet.HdrLen:]
	copy(eth, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00})
	if len(eth) > 1500+vnet.EthLen && n <= 65535 {
		h := vnet.Header{
			Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, HdrLen: 54, GSOSize: 1460, CsumStart: 34, CsumOffset: 16,
		}
		h.Encode(f)
		eth[14], eth[14+9] = 0x45, 6
		eth[34+12] = 5 << 4
	}
	if n >= vnet.HdrLen+vnet.EthLen+8 {
		binary.BigEndian.PutUint64(f[n-8:], p.frame)
	}
	return f
}

// cross sends frames of the given sizes into a side's queue, and expects them, whole and in order,
// at the other side's queue. It returns the frames.
func (p *pair) cross(from string, queue int, sizes ...int) [][]byte {
	p.t.Helper()
	var frames [][]byte
	for _, n := range sizes {
		frames = append(frames, p.newFrame(n))
	}
	sent := p.feed(from, queue, frames...)
	p.expect(other(from), queue, frames...)
	if err := <-sent; err != nil {
		p.t.Fatal(err)
	}
	return frames
}

// send puts frames into a side's queue. They have to fit there: no frame is received meanwhile.
func (p *pair) send(from string, queue int, frames ...[]byte) {
	p.t.Helper()
	if err := <-p.feed(from, queue, frames...); err != nil {
		p.t.Fatal(err)
	}
}

// feed does what send does in another goroutine, and returns a channel with the result.
func (p *pair) feed(from string, queue int, frames ...[]byte) <-chan error {
	ctx, wire := p.alive(), p.endpoints[from].wires[queue]
	sent := make(chan error, 1)
	go func() {
		for i, f := range frames {
			if err := wire.Send(ctx, f); err != nil {
				sent <- fmt.Errorf("%s: frame %d of %d: %w", from, i, len(frames), err)
				return
			}
		}
		sent <- nil
	}()
	return sent
}

// expect expects exactly these frames, in order, out of a side's queue.
func (p *pair) expect(at string, queue int, frames ...[]byte) {
	p.t.Helper()
	ctx := p.alive()
	buf := make([]byte, 1<<17)
	for i, f := range frames {
		got, err := p.endpoints[at].wires[queue].Receive(ctx, buf)
		if err != nil {
			p.t.Fatalf("%s: frame %d of %d: %v\n%+v\n%+v", at, i, len(frames), err, p.endpoints[other(at)].conn.Stats(),
				p.endpoints[at].conn.Stats())
		}
		if !bytes.Equal(got, f) {
			p.t.Fatalf("%s: frame %d of %d: %d bytes arrived, differing from the %d sent\n%+v\n%+v", at, i, len(frames),
				len(got), len(f),
				p.endpoints[other(at)].conn.Stats(), p.endpoints[at].conn.Stats())
		}
	}
}

// repeat returns a list of n sizes, all equal to size.
func repeat(size, n int) []int { return slices.Repeat([]int{size}, n) }

package vhostuser

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// watchedDevice counts the sent bytes inside and outside of a memory.
type watchedDevice struct {
	fabric.Device
	inside, outside atomic.Uint64 // bytes
	within          func(addr uint64) bool
}

func (w *watchedDevice) NewDomain() (fabric.Domain, error) {
	d, err := w.Device.NewDomain()
	return watchedDomain{d, w}, err
}

type watchedDomain struct {
	fabric.Domain
	w *watchedDevice
}

func (d watchedDomain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	q, err := d.Domain.NewQP(cfg)
	return watchedQP{q, d.w}, err
}

type watchedQP struct {
	fabric.QP
	w *watchedDevice
}

func (q watchedQP) PostSend(wrs []fabric.SendWR) (int, error) {
	for i := range wrs {
		if q.w.within(wrs[i].Addr) {
			q.w.inside.Add(uint64(wrs[i].Len))
		} else {
			q.w.outside.Add(uint64(wrs[i].Len))
		}
	}
	return q.QP.PostSend(wrs)
}

// testBorrower gets lent frames of one ring.
type testBorrower struct {
	borrower
	loans []vnet.Loan
}

// newBorrower makes a borrower for this number of frames at a time, with at most four pieces each.
// The borrower has keys of all of the ring's memory.
func newBorrower(g *guest, frames int) *testBorrower {
	m := g.v.ring.base().mem.shared
	b := &testBorrower{borrower: borrower{
		lent: make([]vnet.Lent, frames), keys: &vnet.Keys{Memory: m, Keys: make([]vnet.Key, len(m.Regions))},
	}}
	for i := range b.keys.Keys {
		b.keys.Keys[i] = vnet.Key{LKey: uint32(i) + 7, Known: true}
	}
	for i := range b.lent {
		b.lent[i].Pieces = make([]vnet.Piece, 0, 4)
	}
	return b
}

// read reads frames. It checks the length of the lent pieces, and that each is in the region of its
// key.
func (b *testBorrower) read(t *testing.T, g *guest, ops []vnet.ReadOp, sleep bool) int {
	t.Helper()
	for i := range b.lent {
		b.lent[i].Pieces = b.lent[i].Pieces[:0]
	}
	n := g.v.read(ops, &b.borrower, sleep)
	for i := range ops[:n] {
		l := &b.lent[i]
		if len(l.Pieces) == 0 {
			continue
		}
		size := len(ops[i].Frame)
		for _, p := range l.Pieces {
			size += len(p.Mem)
			all := b.keys.Memory.Regions[p.LKey-7].Bytes
			from := uintptr(unsafe.Pointer(&p.Mem[0])) - uintptr(unsafe.Pointer(&all[0]))
			if from >= uintptr(len(all)) || uintptr(len(p.Mem)) > uintptr(len(all))-from {
				t.Fatalf("%d bytes are lent of no region", len(p.Mem))
			}
		}
		if size != l.Size || size > vnet.MaxFrame || len(ops[i].Frame) != lendHead {
			t.Fatalf("a frame of %d bytes is lent as %d, %d of which are copied", l.Size, size, len(ops[i].Frame))
		}
		b.loans = append(b.loans, l.Loan)
	}
	return n
}

// giveBack returns n loans, or all if there are fewer.
func (b *testBorrower) giveBack(g *guest, n int) {
	n = min(n, len(b.loans))
	g.v.giveBack(b.loans[:n])
	b.loans = b.loans[n:]
}

// lent is a device whose memory is lent to a session. The other end of the session sends all frames
// back.
type lent struct {
	t      *testing.T
	mode   protocol.Mode
	d      *Device
	a      Address
	net    *fabrictest.Network  // nil over real devices
	device func() fabric.Device // makes the device of the other end
	watch  *watchedDevice
	budget *messaging.Budget
	conns  []*messaging.Conn
	far    messaging.Port
}

// newLent makes a lent over the fabric in memory.
func newLent(t *testing.T, mode protocol.Mode) *lent {
	n := fabrictest.New()
	near := n.Device("near")
	l := newLentOn(t, mode, near, func() fabric.Device {
		d := n.Device("far")
		t.Cleanup(func() { d.Close() })
		return d
	})
	t.Cleanup(func() { near.Close() })
	l.net = n
	return l
}

func newLentOn(t *testing.T, mode protocol.Mode, near fabric.Device, far func() fabric.Device) *lent {
	a := Address{Path: t.TempDir() + "/s"}
	d := openLive(t, a)
	t.Cleanup(func() { d.Close() })
	l := &lent{t: t, mode: mode, d: d, a: a, device: far, budget: messaging.NewBudget(1 << 30)}
	l.watch = &watchedDevice{Device: near, within: func(addr uint64) bool {
		m, _ := d.Queues()[0].Memory()
		return m != nil && slices.ContainsFunc(m.Regions, func(r *vnet.Region) bool {
			return addr-uint64(uintptr(unsafe.Pointer(&r.Bytes[0]))) < uint64(len(r.Bytes))
		})
	}}
	port, wire := porttest.New(t, 1<<20)
	l.far = porttest.Batched{Single: port}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, vnet.MaxFrame+1); ; {
			f, err := wire.Receive(ctx, buf)
			if err == nil {
				err = wire.Send(ctx, f)
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return l
}

// connect begins a session. The session first sends unsent, the unsent frames of the previous one.
func (l *lent) connect(unsent *messaging.Unsent) {
	l.t.Helper()
	l.conns = nil
	for _, device := range []fabric.Device{l.watch, l.device()} {
		c, err := messaging.New(messaging.Config{
			Device: device, Mode: l.mode, MTU: 9000, Timing: fabric.Timing{Timeout: 18}, PeerTimeout: time.Minute,
			ZeroCopy: l.budget,
			Pools:    messaging.DefaultPools(l.mode, 9000),
		})
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { c.Close() })
		l.conns = append(l.conns, c)
	}
	for i, c := range l.conns {
		if err := c.Connect(l.conns[1-i].Addresses(), l.conns[1-i].ControlReceives()); err != nil {
			l.t.Fatal(err)
		}
	}
	begin := func(c *messaging.Conn, port messaging.Port, unsent *messaging.Unsent) {
		if err := errors.Join(c.StartControl(), c.StartData([]messaging.Port{port}, unsent)); err != nil {
			l.t.Fatal(err)
		}
	}
	begin(l.conns[0], l.d.Queues()[0], unsent)
	begin(l.conns[1], l.far, nil)
}

// lentFrom is the least length of lent frames in these tests, whose front ends have little memory.
const lentFrom = 4096

// driver returns a front end whose frames are long enough to be lent.
func (l *lent) driver(feats features) *driver {
	g := newDriver(l.t, feats)
	g.shortest, g.longest, g.ahead = lentFrom, 9000, 12
	return g
}

func (l *lent) count() uint64 { return l.conns[0].Stats().Channels[0].TxLent }

// lend exchanges frames until this number of further frames has been lent.
func (l *lent) lend(g *driver, frames uint64) {
	l.t.Helper()
	for until := l.count() + frames; l.count() < until; {
		g.exchange(g.got + 10)
	}
}

// settled waits until the driver has all chains back and no frame is lent.
func (l *lent) settled(g *driver) {
	l.t.Helper()
	m, _ := l.d.Queues()[0].Memory()
	testenv.Eventually(l.t, func() bool {
		for ok := true; ok; {
			_, _, ok = g.take(1)
		}
		return len(g.posted[1]) == 0 && m.Lend(0) == 0
	}, "all chains come back")
}

// TestLent sends frames from the front end's memory, in all modes and by all kinds of
// rings, while the front end adds and removes memory, and stops rings. It expects no
// frame to be changed, lost or doubled, each chain to be returned once, and all of a
// frame except the beginning to be sent from that memory.
func TestLent(t *testing.T) {
	for _, mode := range protocol.Modes() {
		for name, feats := range kinds {
			t.Run(string(mode)+" "+name, func(t *testing.T) {
				l := newLent(t, mode)
				g := l.driver(feats)
				g.start(meet(t, l.a)())
				l.connect(nil)
				for i := range 4 {
					l.lend(g, 40)
					g.swap()
					l.lend(g, 10)
					if i%2 == 0 { // frames to a stopped ring are lost
						g.exchange(g.sent)
					}
					g.restartRing(i % 2)
				}
				g.exchange(g.sent)
				inside, outside, before := l.watch.inside.Load(), l.watch.outside.Load(), l.count()
				first := g.got
				l.lend(g, 100)
				g.exchange(g.sent)
				inside, outside = l.watch.inside.Load()-inside, l.watch.outside.Load()-outside
				lent := l.count() - before
				// The bytes outside of the memory are the beginnings of frames, the headers of the
				// send modes, and keep-alives.
				if n := g.got - first; n != lent || outside > lent*(lendHead+50) || inside < lent*(lentFrom-lendHead) {
					t.Errorf("%d of %d frames are lent: %d bytes lie in the front end's memory, and %d do not", lent, n, inside, outside)
				}
				l.settled(g)
				if s := l.d.Status(); s.Connections != 1 || s.LastError != "" || s.Dropped != 0 || s.Registered < buffersAt ||
					s.NotRegistered != "" {
					t.Errorf("%+v", s)
				}
				for _, c := range l.conns {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
				if s := l.d.Status(); s.Registered != 0 || l.budget.Used() != 0 {
					t.Errorf("%d bytes are registered, %d taken from the budget", s.Registered, l.budget.Used())
				}
			})
		}
	}
}

// TestLentToSessionThatEnds ends sessions while frames are in flight to a peer that does not answer.
// It expects each chain to be returned once, when the session is closed, and the next session to
// work.
func TestLentToSessionThatEnds(t *testing.T) {
	for name, feats := range kinds {
		t.Run(name, func(t *testing.T) {
			l := newLent(t, protocol.ModeImm)
			g := l.driver(feats)
			g.start(meet(t, l.a)())
			l.connect(nil)
			l.lend(g, 10)
			g.exchange(g.sent)
			l.settled(g)
			m, _ := l.d.Queues()[0].Memory()
			l.net.Stall("far")
			for range 8 {
				f := g.numbered(g.sent)
				bufs := g.rings[1].pieces(g.r, len(f), 3)
				for _, b := range bufs {
					f = f[copy(g.rings[1].at(b), f):]
				}
				g.post(1, bufs)
				g.sent++
			}
			testenv.Eventually(t, func() bool { return m.Lend(0) == 8 }, "frames are on their way")
			if _, _, ok := g.take(1); ok {
				t.Fatal("a chain is given back whose frame is on its way")
			}
			unsent := l.conns[0].Stop()
			if n := m.Lend(0); n != 8 {
				t.Errorf("%d frames are lent after the session has stopped", n)
			}
			for _, c := range l.conns {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			l.settled(g)
			l.net.Resume("far")
			g.got = g.sent // the frames in flight are not sent again
			l.connect(unsent)
			l.lend(g, 10)
		})
	}
}

// TestLentTooLong stops a ring as a front end while a frame is in flight to a peer that does not
// answer. It expects the connection of the front end to end with errHeld, and the memory to stay
// until the session has ended.
func TestLentTooLong(t *testing.T) {
	l := newLent(t, protocol.ModeImm)
	g := l.driver(modern)
	connect := meet(t, l.a)
	g.start(connect())
	l.connect(nil)
	l.lend(g, 10)
	g.exchange(g.sent)
	l.settled(g)
	m, _ := l.d.Queues()[0].Memory()
	l.net.Stall("far")
	b := g.rings[1].alloc(9000)
	g.post(1, []buffer{b})
	testenv.Eventually(t, func() bool { return m.Lend(0) == 1 }, "a frame is on its way")
	if _, err := g.conn.Write(messageOf(getVringBase, 0, ofRing(1, 0))); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return l.d.Status().LastError != "" }, "the connection has ended")
	if got := l.d.Status().LastError; got != errHeld.Error() {
		t.Error(got)
	}
	testenv.Explained(t, l.d.Status().LastError)
	if !m.Regions[0].Hold() {
		t.Error("memory is gone that is still read")
	} else if err := m.Regions[0].Release(); err != nil {
		t.Error(err)
	}
	for _, c := range l.conns {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	testenv.Eventually(t, func() bool {
		held := m.Regions[0].Hold()
		if held {
			_ = m.Regions[0].Release()
		}
		return !held
	}, "memory is gone that nobody reads")
	g = l.driver(modern)
	g.start(connect())
	l.net.Resume("far")
	l.connect(nil)
	l.lend(g, 10)
}

// TestNotAllRegistered permits less registered memory than the front end has. It expects frames
// outside of registered memory to be copied, and the reason in the status.
func TestNotAllRegistered(t *testing.T) {
	l := newLent(t, protocol.ModeImm)
	l.budget = messaging.NewBudget(1 << 20)
	g := l.driver(modern)
	g.start(meet(t, l.a)())
	l.connect(nil)
	testenv.Eventually(t, func() bool { return l.d.Status().NotRegistered != "" }, "why not all is registered")
	g.exchange(50)
	s := l.d.Status()
	if !strings.Contains(s.NotRegistered, "1MiB") || s.Registered > 1<<20 || l.count() != 0 {
		t.Errorf("%+v, %d frames are lent", s, l.count())
	}
	testenv.Explained(t, s.NotRegistered)
}

// TestLentAndChanged changes a lent frame as a front end between the check and the transfer. It
// expects the checked bytes to be a copy that does not change.
func TestLentAndChanged(t *testing.T) {
	g := newGuest(t, modern, 1, 1)
	raw := make([]byte, 12+9000)
	for i := range raw[12:] {
		raw[12+i] = byte(i)
	}
	b := g.alloc(len(raw))
	copy(g.at(b), raw)
	g.add([]buffer{b}, false)
	to, ops := newBorrower(g, 1), readOps(1)
	if n := to.read(t, g, ops, false); n != 1 || len(to.lent[0].Pieces) != 1 || to.lent[0].Size != vnet.HdrLen+9000 {
		t.Fatalf("%d frames are read: %+v", n, to.lent[0])
	}
	if _, ok := g.used(); ok {
		t.Error("the chain of a frame that is lent is given back")
	}
	for i := range g.at(b) {
		g.at(b)[i] = 0xff
	}
	head, rest := ops[0].Frame, to.lent[0].Pieces[0]
	if len(head) != lendHead || !bytes.Equal(head[vnet.HdrLen:], raw[12:][:lendHead-vnet.HdrLen]) {
		t.Error("the beginning of the frame has changed")
	}
	if len(rest.Mem) != 9000-lendHead+vnet.HdrLen || rest.Mem[0] != 0xff || rest.LKey != 7 {
		t.Errorf("the rest, %d bytes, is not where the front end has it", len(rest.Mem))
	}
}

// TestNotLent reads frames that have to be copied, and for comparison frames that are lent.
func TestNotLent(t *testing.T) {
	for name, c := range map[string]struct {
		bufs    int
		size    int
		regions int // number of registered regions
		other   bool
		recall  bool
		header  byte
		allowed vnet.Offloads
		lent    bool
	}{
		"long":               {bufs: 1, size: lentFrom, regions: 4, lent: true},
		"in four places":     {bufs: 4, size: lentFrom, regions: 4, lent: true},
		"short":              {bufs: 1, size: lentFrom - 1, regions: 4},
		"in too many places": {bufs: 6, size: lentFrom, regions: 4},
		"other memory":       {bufs: 1, size: lentFrom, regions: 4, other: true},
		"not registered":     {bufs: 1, size: lentFrom, regions: 3},
		"recalled":           {bufs: 1, size: lentFrom, regions: 4, recall: true},
		"to be finished":     {bufs: 1, size: lentFrom, regions: 4, header: vnet.FlagNeedsCsum},
		"finished by the unit": {
			bufs: 1, size: lentFrom, regions: 4, header: vnet.FlagNeedsCsum, allowed: vnet.CSUM, lent: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, modern, 1, 4)
			g.d.granted.Store(uint32(c.allowed))
			g.d.recalled.Store(c.recall)
			g.free = buffersAt + 1<<20 // an offset in the last region
			var bufs []buffer
			for left := c.size; left > 0; {
				n := left
				if len(bufs) < c.bufs-1 {
					n = c.size / c.bufs
				}
				bufs = append(bufs, g.alloc(n))
				g.free += 100
				left -= n
			}
			g.at(bufs[0])[0] = c.header
			g.add(bufs, false)
			to, ops := newBorrower(g, 1), readOps(1)
			for i := range to.keys.Keys {
				to.keys.Keys[i].Known = i < c.regions
			}
			if c.other {
				to.keys.Memory = &vnet.Memory{}
			}
			if n := to.read(t, g, ops, false); n != 1 {
				t.Fatalf("%d frames are read", n)
			}
			if got := len(to.lent[0].Pieces) > 0; got != c.lent {
				t.Errorf("lent is %t: %+v", got, to.lent[0])
			}
			if _, back := g.used(); back == c.lent {
				t.Errorf("given back is %t", back)
			}
		})
	}
}

// TestLentInOrder reads a copied frame between two lent ones. It expects the chains to be returned
// in the order of the ring, none before that of the first frame. So a later process would read all
// three frames again.
func TestLentInOrder(t *testing.T) {
	for name, feats := range kinds {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, feats, 1, 1)
			to, ops := newBorrower(g, 3), readOps(3)
			for _, n := range []int{lentFrom, 100, lentFrom} {
				g.add([]buffer{g.alloc(n)}, false)
			}
			for got := 0; got < 3; {
				n := to.read(t, g, ops, false)
				if n == 0 {
					t.Fatalf("%d frames are read", got)
				}
				got += n
			}
			if len(to.loans) != 2 {
				t.Fatalf("%d frames are lent", len(to.loans))
			}
			taken := func(want int) {
				t.Helper()
				n := 0
				for ok := true; ok; n++ {
					_, ok = g.used()
				}
				if n--; n != want {
					t.Errorf("%d chains are given back, and should %d", n, want)
				}
			}
			taken(0)
			g.v.giveBack(to.loans[1:])
			taken(0)
			g.v.giveBack(to.loans[:1])
			taken(3)
			g.add([]buffer{g.alloc(100)}, false)
			to.read(t, g, ops, false)
			taken(1)
		})
	}
}

// TestLentTruncated truncates the file of a lent frame, and then fetches the frame, which copies
// it. It expects an error instead of the frame, and the end of the connection of the front end.
func TestLentTruncated(t *testing.T) {
	g := newGuest(t, modern, 1, 1)
	g.d.lender.rings = []*vring{{}, g.v}
	q := &Queue{lender: g.d.lender}
	for i := range 2 {
		g.add([]buffer{g.alloc(lentFrom + i)}, false)
	}
	to, ops := newBorrower(g, 2), readOps(2)
	if n := to.read(t, g, ops, false); n != 2 || len(to.loans) != 2 {
		t.Fatalf("%d frames are read, and %d lent", n, len(to.loans))
	}
	q.Fetch(&ops[0], &to.lent[0])
	if len(ops[0].Frame) != vnet.HdrLen+lentFrom-12 || ops[0].Err != nil || len(to.lent[0].Pieces) > 0 {
		t.Errorf("%d bytes: %v", len(ops[0].Frame), ops[0].Err)
	}
	if err := unix.Ftruncate(g.fd, 0); err != nil {
		t.Fatal(err)
	}
	q.Fetch(&ops[1], &to.lent[1])
	if err := g.ended(); !errors.Is(ops[1].Err, vnet.ErrInvalid) || !errors.Is(err, errTruncated) {
		t.Errorf("%v, and the front end %v", ops[1].Err, err)
	}
	if n := to.keys.Memory.Lend(0); n != 0 {
		t.Errorf("%d frames are lent", n)
	}
}

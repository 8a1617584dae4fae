package messaging_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// TestChooseProtection checks which protection is in force on which device.
func TestChooseProtection(t *testing.T) {
	none, loose, full := conform.Windows{}, conform.Windows{Work: true}, conform.Windows{Work: true, Bounds: true}
	broken, doubtful := conform.Windows{Why: "what went wrong"}, conform.Windows{Work: true, Why: "what went wrong"}
	for _, c := range []struct {
		name    string
		asked   messaging.Protection
		windows conform.Windows
		want    messaging.Protection // empty: ChooseProtection fails
	}{
		{"default without windows", "", none, messaging.ProtectRegion},
		{"default without their bounds", "", loose, messaging.ProtectRegion},
		{"default with both", "", full, messaging.ProtectWindow},
		{"region on any device", messaging.ProtectRegion, full, messaging.ProtectRegion},
		{"window without windows", messaging.ProtectWindow, none, ""},
		{"window without their bounds", messaging.ProtectWindow, loose, messaging.ProtectWindow},
		{"one-touch without windows", messaging.ProtectOneTouch, none, ""},
		{"one-touch without their bounds", messaging.ProtectOneTouch, loose, messaging.ProtectOneTouch},
		{"one-touch with both", messaging.ProtectOneTouch, full, messaging.ProtectOneTouch},
		{"default with windows that do not work", "", broken, messaging.ProtectRegion},
		{"window with windows that do not work", messaging.ProtectWindow, broken, ""},
		{"default with bounds in doubt", "", doubtful, messaging.ProtectRegion},
		{"one-touch with bounds in doubt", messaging.ProtectOneTouch, doubtful, messaging.ProtectOneTouch},
	} {
		p, err := messaging.ChooseProtection(c.asked, c.windows)
		if p.Name != c.want || (err == nil) != (c.want != "") || err == nil && p.Why == "" ||
			err != nil && !errors.Is(err, fabric.ErrUnsupported) {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
		if said := p.Why + fmt.Sprint(err); strings.Contains(said, "what went wrong") != (c.windows.Why != "") {
			t.Errorf("%s: %q", c.name, said)
		}
	}
	for _, p := range messaging.Protections() {
		if got, err := messaging.ParseProtection(string(p)); got != p || err != nil || p.Description() == "" {
			t.Errorf("%s: %q, %v", p, got, err)
		}
	}
	if _, err := messaging.ParseProtection("windows"); err == nil {
		t.Error("an unknown protection was parsed")
	}
}

// TestProtectionOfSession checks which protection a session uses.
func TestProtectionOfSession(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  messaging.Config
		want messaging.Protection
		err  error
	}{
		{"modes that lend nothing", messaging.Config{Mode: protocol.ModeSend, Protection: messaging.ProtectOneTouch},
			messaging.ProtectRegion, nil},
		{"one-touch pools for a peer that knows them",
			messaging.Config{Protection: messaging.ProtectOneTouch, OneTouch: true}, messaging.ProtectOneTouch, nil},
		{"and for one that does not", messaging.Config{Protection: messaging.ProtectOneTouch}, "", messaging.ErrOneTouch},
		{"windows for any peer", messaging.Config{Protection: messaging.ProtectWindow}, messaging.ProtectWindow, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := fabrictest.New()
			fabrictest.NoLeaks(t, n)
			dev := n.Device("a")
			t.Cleanup(func() { dev.Close() })
			c.cfg.Device = dev
			conn, err := messaging.New(c.cfg)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if s := conn.Stats(); s.Protection.Name != c.want || s.Protection.Why == "" {
				t.Errorf("protected by %+v", s.Protection)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := (messaging.Config{Protection: "x"}).Check(); err == nil {
		t.Error("an unknown protection is configured")
	}
}

// TestWindowsEndWithTheSession ends sessions with windows bound, elements in use and frames on
// their way. Everything must be released.
func TestWindowsEndWithTheSession(t *testing.T) {
	for _, g := range guards {
		t.Run(g.String(), func(t *testing.T) {
			n, a, b := newPair(t, g.of(scarce(g.mode, time.Hour)), g.of(scarce(g.mode, time.Hour)))
			ctx := deadline(t)
			for i := range uint64(40) { // the test does not receive them
				if err := a.wires[0].Send(ctx, frame(i, 1000, 1500)); err != nil {
					t.Fatal(err)
				}
			}
			until(t, func() error {
				if b.conn.Stats().Channels[0].RxFrames == 0 {
					return errors.New("no frame has arrived")
				}
				return nil
			})
			for _, h := range []*endpoint{b, a} {
				if err := h.conn.Close(); err != nil {
					t.Error(err)
				}
			}
			if l := n.Live(); l.Windows+l.Regions+l.QPs+l.Domains != 0 {
				t.Errorf("left open: %+v", l)
			}
		})
	}
}

// TestOneTouchKeysInMessages lends a pool whose keys take several messages, and uses each of
// its elements.
func TestOneTouchKeysInMessages(t *testing.T) {
	const elements = 2*protocol.MaxPoolKeys + 5
	cfg := patient(messaging.Config{
		Mode: protocol.ModeIndicate, NoPack: true, Protection: messaging.ProtectOneTouch, OneTouch: true,
		Pools: []messaging.PoolConfig{{ElementSize: 128, Elements: elements}}, MaxPools: 1,
	})
	n, a, b := newPair(t, cfg, cfg)
	if err := stream(deadline(t), a.wires[0], b.wires[0], slices.Repeat([]int{100}, 3*elements), 1500); err != nil {
		t.Error(err)
	}
	settled(t, a, b)
	untroubled(t, n, a, b)
	// All windows are bound again, some of them a little later.
	until(t, func() error {
		if s := b.conn.Stats().Channels[0]; s.WindowsBound != 4*elements {
			return fmt.Errorf("%d windows were bound for %d transfers to %d elements", s.WindowsBound, 3*elements, elements)
		}
		return nil
	})
}

// busyPort is a port that calls wait before each read.
type busyPort struct {
	messaging.Port
	wait func()
}

// ReadFrames implements messaging.Port.
func (p busyPort) ReadFrames(ops []vnet.ReadOp) int {
	p.wait()
	return p.Port.ReadFrames(ops)
}

// TestBindBesideFrames lends a pool with more windows than the send queue has room for, and
// sends a frame when the first windows have been bound and leave room. The other windows must
// still be bound. Whether the frame is sent in between is a matter of chance, so the test tries
// several times.
func TestBindBesideFrames(t *testing.T) {
	cfg := patient(messaging.Config{
		Protection: messaging.ProtectOneTouch, OneTouch: true, SendSlots: 20, Batch: 2,
		Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 300}}, MaxPools: 1,
	})
	const room = 2*20 + 2*64
	peer := patient(messaging.Config{Protection: messaging.ProtectRegion, OneTouch: true, MaxPools: 1, Pools: cfg.Pools})
	for range 20 {
		n := fabrictest.New()
		fabrictest.NoLeaks(t, n)
		a, b := newEndpoint(t, n, "a", cfg), newEndpoint(t, n, "b", peer)
		connect(t, a, b)
		ctx := deadline(t)
		if err := a.wires[0].Send(ctx, frame(0, 1000, 1500)); err != nil {
			t.Fatal(err)
		}
		a.ports[0] = busyPort{a.ports[0], func() {
			for n.Counters("a").Binds < room && ctx.Err() == nil {
				runtime.Gosched()
			}
		}}
		for _, h := range []*endpoint{b, a} {
			if err := h.conn.Start(h.ports); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream(ctx, b.wires[0], a.wires[0], []int{1000}, 1500); err != nil {
			t.Fatalf("%v; %d windows are bound", err, a.conn.Stats().Channels[0].WindowsBound)
		}
	}
}

// TestUnrevoked ends a session while there are frames in one-touch elements whose windows are
// not invalid yet. The frames must be counted and not delivered.
func TestUnrevoked(t *testing.T) {
	const frames = 5
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	cfg := patient(messaging.Config{Protection: messaging.ProtectOneTouch, OneTouch: true})
	a, b := newEndpoint(t, n, "a", cfg), newEndpoint(t, n, "b", cfg)
	connect(t, a, b)
	ctx := deadline(t)
	// The sender, which would invalidate the windows, blocks in its port after the peer has all
	// pools.
	var hold atomic.Bool
	waiting, free := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	t.Cleanup(release) // before the endpoints close
	b.ports[0] = busyPort{b.ports[0], func() {
		if hold.CompareAndSwap(true, false) {
			close(waiting)
			<-free
		}
	}}
	for _, h := range []*endpoint{a, b} {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() error {
		if have, lent := a.conn.Stats().Channels[0].RemotePools, b.conn.Stats().Channels[0].LocalPools; len(have) != len(
			lent) {
			return fmt.Errorf("%d pools are granted, of %d", len(have), len(lent))
		}
		return nil
	})
	hold.Store(true)
	if err := b.wires[0].Send(ctx, frame(0, 100, 1500)); err != nil {
		t.Fatal(err)
	}
	<-waiting
	for i := range uint64(frames) {
		if err := a.wires[0].Send(ctx, frame(i, 1000, 1500)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() error {
		sent, came := a.conn.Stats().Channels[0], b.conn.Stats().Channels[0]
		if sent.TxFrames != frames || came.Local.Consumed != sent.Remote.Out {
			return fmt.Errorf("%d frames were sent in %d elements, %d have come", sent.TxFrames, sent.Remote.Out,
				came.Local.Consumed)
		}
		return nil
	})
	go func() {
		<-b.conn.Done()
		release()
	}()
	if r := b.conn.Stop(); r.Unrevoked != frames {
		t.Errorf("%d frames were not revoked, of %d", r.Unrevoked, frames)
	}
	if s := b.conn.Stats().Channels[0]; s.RxUnrevoked != frames || s.RxFrames != 0 {
		t.Errorf("%+v", s)
	}
	if r := a.conn.Stop(); r.Uncertain != frames || r.Unrevoked > 1 { // 1: the frame that b has read from its port
		t.Errorf("%+v remains with who sent them", r)
	}
}

package messaging_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// pacedPort is a port that holds frames back for as long as the test sets.
type pacedPort struct {
	porttest.Single
	rxHold, txHold atomic.Int64 // how long frames from, and to, the port are held back, in ns
	trickle        atomic.Bool  // each frame to the port is held back once
	rxHeld, txHeld bool         // the last read, or write, was held back
}

func (p *pacedPort) ReadHold() time.Duration  { return span(p.rxHeld, &p.rxHold) }
func (p *pacedPort) WriteHold() time.Duration { return span(p.txHeld, &p.txHold) }

func span(held bool, d *atomic.Int64) time.Duration {
	if !held {
		return 0
	}
	return time.Duration(max(d.Load(), 1))
}

func (p *pacedPort) ReadFrames(ops []vnet.ReadOp) int {
	return porttest.Batched{Single: p}.ReadFrames(ops)
}

func (p *pacedPort) WriteFrames(ops []vnet.WriteOp) int {
	return porttest.Batched{Single: p}.WriteFrames(ops)
}

func (p *pacedPort) ReadFrame(slot []byte) ([]byte, error) {
	if p.rxHeld = p.rxHold.Load() > 0; p.rxHeld {
		return nil, unix.EAGAIN
	}
	return p.Single.ReadFrame(slot)
}

func (p *pacedPort) WriteFrame(f []byte) error {
	if p.txHeld = p.txHold.Load() > 0 || (p.trickle.Load() && !p.txHeld); p.txHeld {
		return unix.EAGAIN
	}
	return p.Single.WriteFrame(f)
}

func (p *pacedPort) hold(d time.Duration) {
	p.rxHold.Store(int64(d))
	p.txHold.Store(int64(d))
}

// pacedPair returns two endpoints. b has a paced port, p.
func pacedPair(t *testing.T, cfg messaging.Config) (a, b *endpoint, p *pacedPort) {
	t.Helper()
	cfg = patient(cfg)
	_, a, b = newStopped(t, cfg, cfg)
	p = &pacedPort{Single: b.ports[0].(porttest.Batched).Single}
	b.ports = []messaging.Port{p}
	for _, h := range []*endpoint{a, b} {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	return a, b, p
}

// waits waits until b's workers wait for the end of a hold, in both directions.
func waits(t *testing.T, b *endpoint, before messaging.ChannelStats) {
	t.Helper()
	until(t, func() error {
		s := b.conn.Stats().Channels[0]
		if s.TxThrottled == before.TxThrottled || s.RxThrottled == before.RxThrottled {
			return fmt.Errorf("held back %d times and %d times", s.TxThrottled, s.RxThrottled)
		}
		return nil
	})
}

// inEachGuard runs a test in each mode and with each memory protection.
func inEachGuard(t *testing.T, test func(t *testing.T, cfg messaging.Config)) {
	for _, mode := range []protocol.Mode{protocol.ModeSend, protocol.ModeSendUC} {
		t.Run(string(mode), func(t *testing.T) { test(t, messaging.Config{Mode: mode}) })
	}
	for _, g := range guards {
		t.Run(g.String(), func(t *testing.T) { test(t, g.of(messaging.Config{})) })
	}
}

// TestHeldPort holds frames back in both directions for longer than the test may last. In the
// meantime requests must be answered. After the end of the hold, every frame must arrive, in
// order.
func TestHeldPort(t *testing.T) {
	inEachGuard(t, func(t *testing.T, cfg messaging.Config) {
		a, b, p := pacedPair(t, cfg)
		ctx := deadline(t)
		if err := stream(ctx, a.wires[0], b.wires[0], randomSizes(1, 100), 1500); err != nil {
			t.Fatal(err)
		}
		before := b.conn.Stats().Channels[0]
		p.hold(time.Hour)
		errs := make(chan error, 2)
		const frames = 200
		for _, dir := range [][2]*endpoint{{a, b}, {b, a}} {
			go func() { errs <- stream(ctx, dir[0].wires[0], dir[1].wires[0], randomSizes(2, frames), 1500) }()
		}
		waits(t, b, before)
		for range 3 {
			if _, err := a.conn.Request(ctx, protocol.CfgKeepAlive, nil); err != nil {
				t.Fatal(err)
			}
		}
		if s := b.conn.Stats().Channels[0]; s.RxPortBusy != before.RxPortBusy {
			t.Errorf("waited %d times for room in the port", s.RxPortBusy-before.RxPortBusy)
		}
		p.hold(0)
		b.conn.Unhold()
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		settled(t, a, b)
	})
}

// TestHeldSleeps sends frames to a port that holds them back. They must not wake the sender.
func TestHeldSleeps(t *testing.T) {
	a, b, p := pacedPair(t, messaging.Config{})
	p.hold(time.Hour)
	ctx := deadline(t)
	come := func(seq uint64) {
		t.Helper()
		if err := b.wires[0].Send(ctx, frame(seq, 100, 1500)); err != nil {
			t.Fatal(err)
		}
	}
	come(0)
	until(t, func() error {
		if b.conn.Stats().Channels[0].TxThrottled == 0 {
			return errors.New("nothing is held back")
		}
		return nil
	})
	for i := range uint64(50) {
		come(1 + i)
		// This takes longer than a wake-up.
		if _, err := a.conn.Request(ctx, protocol.CfgKeepAlive, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.conn.Stats().Channels[0].TxThrottled; n > 5 {
		t.Errorf("the sender has gone to sleep %d times", n)
	}
}

// TestHoldEnds lets frames pass after a while, without notifying the workers.
func TestHoldEnds(t *testing.T) {
	a, b, p := pacedPair(t, messaging.Config{})
	p.hold(time.Millisecond)
	errs := make(chan error, 2)
	for _, dir := range [][2]*endpoint{{a, b}, {b, a}} {
		go func() {
			errs <- stream(deadline(t), dir[0].wires[0], dir[1].wires[0], randomSizes(3, 100), 1500)
		}()
	}
	for range 3 { // each hold lasts a millisecond
		waits(t, b, b.conn.Stats().Channels[0])
	}
	p.hold(0)
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestHeldAtTheEnd ends sessions while one side holds frames back for an hour. The end must
// not wait for the hold.
func TestHeldAtTheEnd(t *testing.T) {
	inEachGuard(t, func(t *testing.T, cfg messaging.Config) {
		a, b, p := pacedPair(t, cfg)
		p.hold(time.Hour)
		for i := range uint64(100) {
			for _, h := range []*endpoint{a, b} {
				if err := h.wires[0].Send(deadline(t), frame(i, 1000, 1500)); err != nil {
					t.Fatal(err)
				}
			}
		}
		waits(t, b, messaging.ChannelStats{})
		ended := make(chan error, 1)
		go func() { ended <- b.conn.Close() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-deadline(t).Done():
			t.Fatal("the session does not end")
		}
	})
}

// TestHeldPools has the peer ask for pools because its frames are held back. It must get none
// until the hold is over.
func TestHeldPools(t *testing.T) {
	cfg := messaging.Config{Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 4}}, MaxPools: 3, PeerPools: 3,
		PoolIdle: 40 * time.Millisecond}
	a, b, p := pacedPair(t, cfg)
	p.trickle.Store(true)
	ctx := deadline(t)
	errs := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				errs <- nil
				return
			default:
			}
			if err := a.wires[0].Send(ctx, frame(i, 1000, 1500)); err != nil {
				errs <- err
				return
			}
		}
	}()
	go func() {
		for buf := make([]byte, 2000); ; {
			if _, err := b.wires[0].Receive(t.Context(), buf); err != nil {
				return
			}
		}
	}()
	until(t, func() error {
		if s := b.conn.Stats(); s.PoolsRefused < 2 {
			return errors.New("no pool was refused")
		}
		return nil
	})
	if s := b.conn.Stats(); s.PoolsGranted != 0 {
		t.Errorf("%d pools were lent", s.PoolsGranted)
	}
	p.trickle.Store(false)
	until(t, func() error {
		if s := b.conn.Stats(); s.PoolsGranted == 0 {
			return errors.New("no pool is lent when nothing is held back any more")
		}
		return nil
	})
	close(stop)
	if err := <-errs; err != nil {
		t.Error(err)
	}
}

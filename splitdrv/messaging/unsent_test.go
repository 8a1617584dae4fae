package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// TestUnsent ends a session that has read frames which it could not send. The next session must
// send them first.
func TestUnsent(t *testing.T) {
	const mtu, long = 9000, 9000
	n := fabrictest.New()
	cfg := patient(messaging.Config{MTU: mtu, MaxPools: 5})
	scarce := cfg
	// The small pool keeps the sender reading when there is no room for another long frame: a
	// short frame would fit. So the long frame is read, too.
	scarce.Pools = []messaging.PoolConfig{{ElementSize: 2048, Elements: 16}, {ElementSize: 10240, Elements: 2}}
	scarce.Protection = messaging.ProtectRegion // so that no windows have to be bound
	a, b := newEndpoint(t, n, "a", cfg), newEndpoint(t, n, "b", scarce)
	connect(t, a, b)
	if err := a.conn.StartControl(); err != nil {
		t.Fatal(err)
	}
	// The peer lends pools and is then stopped: it returns no elements.
	if err := b.conn.StartControl(); err != nil {
		t.Fatal(err)
	}
	if err := b.conn.StartData(b.ports, nil); err != nil {
		t.Fatal(err)
	}
	until(t, func() error {
		if a.conn.Stats().Channels[0].Remote.Elements != 18 {
			return errors.New("nothing is lent")
		}
		return nil
	})
	b.conn.Stop() // a can still write to the pools that b has lent
	if err := a.conn.StartData(a.ports, nil); err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for i := range 3 {
		f := frame(uint64(i), long, mtu)
		frames = append(frames, f)
		if err := a.wires[0].Send(deadline(t), f); err != nil {
			t.Fatal(err)
		}
	}
	for a.conn.Stats().Channels[0].TxNoCredit == 0 {
		if err := a.conn.Err(); err != nil {
			t.Fatal(err)
		}
	}
	r := a.conn.Stop()
	if r.Count() != 1 || !bytes.Equal(r.Frames[0][0], frames[2]) || r.Uncertain != 2 || r.Lost != 0 {
		t.Fatalf("%d frames to be sent, %d uncertain, %d lost", r.Count(), r.Uncertain, r.Lost)
	}
	if err := errors.Join(a.conn.Close(), b.conn.Close()); err != nil {
		t.Fatal(err)
	}
	if err := a.conn.Err(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}

	// Another session on the same port.
	c, d := newEndpoint(t, n, "c", cfg), newEndpoint(t, n, "d", cfg)
	connect(t, c, d)
	if err := d.conn.Start(d.ports); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.StartControl(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.conn.Close() }) // before the port
	last := frame(4, 100, mtu)
	if err := a.wires[0].Send(deadline(t), last); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.StartData(a.ports, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]byte{frames[2], last} {
		if got, err := d.wires[0].Receive(deadline(t), make([]byte, 1<<16)); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d: %v", len(got), len(want), err)
		}
	}
}

// TestPause checks that a paused session reads no frame, that everything sent before the pause
// has arrived, also if the session is stopped at once, and that the session goes on after
// Resume.
func TestPause(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			_, a, b := newPair(t, patient(messaging.Config{Mode: mode}), patient(messaging.Config{Mode: mode}))
			ctx := deadline(t)
			send := func(seq int) {
				t.Helper()
				if err := a.wires[0].Send(ctx, frame(uint64(seq), 100, 1500)); err != nil {
					t.Fatal(err)
				}
			}
			expect := func(seq int) {
				t.Helper()
				got, err := b.wires[0].Receive(ctx, make([]byte, 1<<16))
				if err != nil || !bytes.Equal(got, frame(uint64(seq), 100, 1500)) {
					t.Fatalf("frame %d: %d bytes, %v", seq, len(got), err)
				}
			}
			for i := range 20 {
				send(i)
			}
			for i := range 20 {
				expect(i)
			}
			for round := range 3 {
				if err := a.conn.Pause(ctx); err != nil {
					t.Fatal(err)
				}
				before := a.conn.Stats().Channels[0].TxFrames
				for i := range 20 {
					send(20 + 20*round + i)
				}
				if n := a.conn.Stats().Channels[0].TxFrames; n != before {
					t.Fatalf("%d frames were taken in a pause", n-before)
				}
				a.conn.Resume()
				for i := range 20 {
					expect(20 + 20*round + i)
				}
			}
			for i := range 40 {
				send(100 + i)
			}
			if err := a.conn.Pause(ctx); err != nil {
				t.Fatal(err)
			}
			sent := int(a.conn.Stats().Channels[0].TxFrames) - 80
			r := a.conn.Stop()
			b.conn.Stop()
			for i := range sent {
				expect(100 + i)
			}
			if n := b.conn.Stats().Channels[0].RxFrames; int(n) != 80+sent {
				t.Errorf("%d frames sent, %d arrived", 80+sent, n)
			}
			for i, f := range r.Frames[0] {
				if !bytes.Equal(f, frame(uint64(100+sent+i), 100, 1500)) {
					t.Errorf("frame %d of those that remain is another one", i)
				}
			}
		})
	}
}

// TestFlushWhilePaused flushes a paused session, from either side, with frames at its port. The flush
// must end all pools and windows of both sides, and take no frame from the port. It must not return
// before its last messages have arrived.
func TestFlushWhilePaused(t *testing.T) {
	for _, g := range guards {
		for _, byPeer := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, by the peer: %t", g, byPeer), func(t *testing.T) {
				cfg := g.of(messaging.Config{Mode: g.mode, PeerTimeout: time.Minute, FlushTime: 10 * time.Second})
				n, a, b := newPair(t, cfg, cfg)
				ctx := deadline(t)
				if err := stream(ctx, a.wires[0], b.wires[0], randomSizes(1, 20), 1500); err != nil {
					t.Fatal(err)
				}
				if err := a.conn.Pause(ctx); err != nil {
					t.Fatal(err)
				}
				before := a.conn.Stats().Channels[0].TxFrames
				for i := range 20 {
					if err := a.wires[0].Send(ctx, frame(uint64(i), 100, 1500)); err != nil {
						t.Fatal(err)
					}
				}
				if err := stream(ctx, b.wires[0], a.wires[0], randomSizes(2, 20), 1500); err != nil {
					t.Fatal(err)
				}
				ends := a
				if byPeer {
					ends = b
				}
				var arrived atomic.Int64
				n.OnSend(ends.dev.Name(), func(_ uint32, wr fabric.SendWR) fabric.Status {
					if wr.Op == fabric.OpSendInv {
						arrived.Add(1)
					}
					return fabric.StatusSuccess
				})
				pools := len(ends.conn.Stats().Channels[0].RemotePools)
				n.Delay(ends.dev.Name(), time.Millisecond) // a flush that does not wait for arrivals is over before them
				if err := ends.conn.Flush(); err != nil {
					t.Fatal(err)
				}
				if got := int(arrived.Load()); g.agreed && g.protection == messaging.ProtectWindow && got != pools {
					t.Errorf("the flush has ended, and %d of %d messages that invalidate windows have arrived", got, pools)
				}
				for _, h := range []*endpoint{a, b} {
					until(t, func() error {
						s := h.conn.Stats()
						c := s.Channels[0]
						if n := len(c.LocalPools) + len(c.RemotePools); n > 0 {
							return fmt.Errorf("%d pools are left", n)
						}
						if n := c.WindowsInvalidated + c.WindowsInvalidatedByPeer; n != c.WindowsBound {
							return fmt.Errorf("%d of %d windows are invalidated", n, c.WindowsBound)
						}
						return h.conn.Err()
					})
				}
				if n := a.conn.Stats().Channels[0].TxFrames; n != before {
					t.Errorf("%d frames were taken in a pause", n-before)
				}
			})
		}
	}
}

// TestFlushInAStream flushes and ends a session while the peer sends frames that fit only into
// the largest pool. Each frame that the peer has read must arrive, or be left for another
// session to send.
func TestFlushInAStream(t *testing.T) {
	for _, g := range guards {
		t.Run(g.String(), func(t *testing.T) {
			cfg := g.of(patient(messaging.Config{
				Mode: g.mode, Pools: []messaging.PoolConfig{{ElementSize: 4096, Elements: 16}, {ElementSize: 2048, Elements: 16}},
			}))
			_, a, b := newPair(t, cfg, cfg)
			ctx, cancel := context.WithCancel(deadline(t))
			defer cancel()
			const size, enough = 3000, 200
			var stream sync.WaitGroup
			defer stream.Wait()
			defer cancel()
			stream.Go(func() {
				for n := uint64(0); a.wires[0].Send(ctx, frame(n, size, 1500)) == nil; n++ {
					continue
				}
			})
			var n atomic.Uint64
			stream.Go(func() {
				buf := make([]byte, vnet.MaxFrame+1)
				for {
					got, err := b.wires[0].Receive(ctx, buf)
					if err != nil {
						return
					}
					if i := n.Load(); !bytes.Equal(got, frame(i, size, 1500)) {
						t.Errorf("%d bytes in the place of frame %d", len(got), i)
					}
					n.Add(1)
				}
			})
			until(t, func() error {
				if got := n.Load(); got < enough {
					return fmt.Errorf("%d of %d frames", got, enough)
				}
				return nil
			})
			if err := b.conn.Flush(); err != nil {
				t.Fatal(err)
			}
			left := a.conn.Stop()
			s := a.conn.Stats().Channels[0]
			if left.Uncertain != 0 || left.Lost != 0 || s.TxTooLong != 0 {
				t.Errorf("%d frames are uncertain, %d lost, %d of %d too long", left.Uncertain, left.Lost, s.TxTooLong, s.TxFrames)
			}
			until(t, func() error {
				if got := n.Load(); got != s.TxFrames {
					return fmt.Errorf("%d of %d frames that were sent have arrived", got, s.TxFrames)
				}
				return nil
			})
			for i, f := range left.Frames[0] {
				if !bytes.Equal(f, frame(n.Load()+uint64(i), size, 1500)) {
					t.Errorf("%d bytes left in the place of frame %d", len(f), n.Load()+uint64(i))
				}
			}
		})
	}
}

package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// endpoint is one side of a session with the wires behind its ports.
type endpoint struct {
	name  string
	dev   fabric.Device
	conn  *messaging.Conn
	ports []messaging.Port
	wires []*porttest.Wire
}

// newEndpoint returns an endpoint with one port for each queue, which is not connected.
func newEndpoint(t *testing.T, n *fabrictest.Network, name string, cfg messaging.Config) *endpoint {
	t.Helper()
	return newEndpointOn(t, n.Device(name), name, cfg)
}

// newEndpointOn is newEndpoint on a given device.
func newEndpointOn(t *testing.T, dev fabric.Device, name string, cfg messaging.Config) *endpoint {
	t.Helper()
	h := &endpoint{name: name, dev: dev}
	t.Cleanup(func() {
		if err := h.dev.Close(); err != nil {
			t.Errorf("%s: close the device: %v", name, err)
		}
	})
	for range max(cfg.Queues, 1) {
		p, w := porttest.New(t, 1<<20)
		h.ports = append(h.ports, porttest.Batched{Single: p})
		h.wires = append(h.wires, w)
	}
	if d, ok := cfg.Device.(interface{ on(fabric.Device) }); ok {
		d.on(h.dev)
	} else {
		cfg.Device = h.dev
	}
	conn, err := messaging.New(cfg)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	h.conn = conn
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	})
	return h
}

// patient returns cfg with time-outs that are long enough for a slow machine.
func patient(cfg messaging.Config) messaging.Config {
	cfg.PeerTimeout, cfg.FlushTime = time.Minute, time.Minute
	return cfg
}

// newPair returns two connected and started endpoints, a and b.
func newPair(t *testing.T, cfgA, cfgB messaging.Config) (n *fabrictest.Network, a, b *endpoint) {
	t.Helper()
	n, a, b = newStopped(t, cfgA, cfgB)
	for _, h := range []*endpoint{a, b} {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	return n, a, b
}

// newStopped is newPair for endpoints that are not started yet.
func newStopped(t *testing.T, cfgA, cfgB messaging.Config) (n *fabrictest.Network, a, b *endpoint) {
	t.Helper()
	goleak.VerifyNone(t)
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n = fabrictest.New()
	fabrictest.NoLeaks(t, n)
	a, b = newEndpoint(t, n, "a", cfgA), newEndpoint(t, n, "b", cfgB)
	if !cfgA.KeySend {
		noKeys(t, n)
	}
	connect(t, a, b)
	return n, a, b
}

// noKeys fails the test, and the session, when a side sends a key that the peer does not
// expect. Such a message would wait for a receive for ever.
func noKeys(t *testing.T, n *fabrictest.Network) {
	for _, dev := range []string{"a", "b"} {
		n.OnSend(dev, func(_ uint32, wr fabric.SendWR) fabric.Status {
			if wr.Op != fabric.OpSendImm {
				return fabric.StatusSuccess
			}
			t.Errorf("%s has sent a key, and the sides do not have that feature", dev)
			return fabric.StatusRemInvReqErr
		})
	}
}

// startedPair makes two started endpoints of one queue on ports from open. It returns the far
// ends of the ports, as returned by open.
func startedPair[W any](
	t *testing.T, cfg messaging.Config, open func(*testing.T) (messaging.Port, W),
) (n *fabrictest.Network, a, b W) {
	t.Helper()
	n = fabrictest.New()
	ha, hb := newEndpoint(t, n, "a", cfg), newEndpoint(t, n, "b", peerOf(t, cfg))
	connect(t, ha, hb)
	var wires [2]W
	for i, h := range []*endpoint{ha, hb} {
		var p messaging.Port
		p, wires[i] = open(t)
		// Registered after the port, so that the Conn is closed before the port.
		t.Cleanup(func() { h.conn.Close() })
		if err := h.conn.Start([]messaging.Port{p}); err != nil {
			t.Fatal(err)
		}
	}
	return n, wires[0], wires[1]
}

func connect(t *testing.T, a, b *endpoint) {
	t.Helper()
	if err := a.conn.Connect(b.conn.Addresses(), b.conn.ControlReceives()); err != nil {
		t.Fatal(err)
	}
	if err := b.conn.Connect(a.conn.Addresses(), a.conn.ControlReceives()); err != nil {
		t.Fatal(err)
	}
}

// settled waits until the ledgers of both sides agree: all lent elements are available to the
// peer. It also checks each ledger.
func settled(t *testing.T, a, b *endpoint) {
	t.Helper()
	check := func(granted, lent bufLedger) error {
		if err := errors.Join(granted.Check(), lent.Check()); err != nil {
			return err
		}
		if lent.Consumed != 0 {
			return fmt.Errorf("%d elements are in use, and their frames may not be counted yet: %+v", lent.Consumed, lent)
		}
		if granted.Available != lent.Lent {
			return fmt.Errorf("%d elements are lent, %d available: %+v %+v", lent.Lent, granted.Available, lent, granted)
		}
		return nil
	}
	until(t, func() error {
		sa, sb := a.conn.Stats(), b.conn.Stats()
		var errs []error
		for i := range sa.Channels {
			errs = append(errs, check(sa.Channels[i].Remote, sb.Channels[i].Local),
				check(sb.Channels[i].Remote, sa.Channels[i].Local))
		}
		return errors.Join(errs...)
	})
}

type bufLedger = messaging.Ledger

// until calls cond, which depends on other threads, until it returns nil.
func until(t *testing.T, cond func() error) {
	t.Helper()
	ctx := deadline(t)
	for tick := time.NewTicker(time.Millisecond); ; {
		err := cond()
		if err == nil {
			tick.Stop()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

func TestFramesCrossBothWays(t *testing.T) {
	for _, queues := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d queues", queues), func(t *testing.T) {
			cfg := patient(messaging.Config{Queues: queues})
			const frames = 1000
			n, a, b := newPair(t, cfg, cfg)
			ctx := deadline(t)
			streamBothWays(ctx, t, a, b, frames).Wait()
			settled(t, a, b)
			untroubled(t, n, a, b)
			for _, h := range []*endpoint{a, b} {
				// Claims 6 and 7 of source document 001: data on one channel, buffer management on the other.
				control := h.conn.Addresses()[0].QPN
				for _, qp := range n.QueuePairs(h.name) {
					switch c := qp.Counters; {
					case qp.Num == control && (c.Writes+c.WriteImms != 0 || c.Sends == 0):
						t.Errorf("%s: control channel: %+v", h.name, c)
					case qp.Num != control && (c.Sends+c.Writes != 0 || c.WriteImms == 0):
						t.Errorf("%s: data channel: %+v", h.name, c)
					}
				}
				for i, s := range h.conn.Stats().Channels {
					if s.TxFrames != frames || s.RxFrames != frames {
						t.Errorf("%s: queue %d: %d frames out, %d in", h.name, i, s.TxFrames, s.RxFrames)
					}
					if s.UpdatesSent >= s.RxFrames/2 {
						t.Errorf("%s: queue %d: %d updates for %d frames", h.name, i, s.UpdatesSent, s.RxFrames)
					}
				}
			}
		})
	}
}

// TestScarcePools sends frames of all sizes through pools of very few elements, with the
// fewest send slots possible. This exercises every wait for a resource.
func TestScarcePools(t *testing.T) {
	for _, elements := range [][2]int{{1, 1}, {3, 1}, {1, 5}, {16, 2}} {
		t.Run(fmt.Sprint(elements), func(t *testing.T) {
			cfg := patient(messaging.Config{
				Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: elements[0]},
					{ElementSize: 65536, Elements: elements[1]}},
				SendSlots: 4, Batch: 1, SignalEvery: 2,
			})
			squeeze(t, cfg, 1500)
		})
	}
}

// squeeze streams frames of all sizes in both directions through one queue.
func squeeze(t *testing.T, cfg messaging.Config, frames int) {
	t.Helper()
	n, a, b := newPair(t, cfg, cfg)
	ctx, cancel := context.WithCancelCause(deadline(t))
	defer cancel(nil)
	for _, h := range []*endpoint{a, b} {
		go func() {
			select {
			case <-h.conn.Done():
				cancel(h.conn.Err())
			case <-ctx.Done():
			}
		}()
	}
	var wg sync.WaitGroup
	for _, dir := range [][2]*endpoint{{a, b}, {b, a}} {
		wg.Go(func() {
			if err := stream(ctx, dir[0].wires[0], dir[1].wires[0], randomSizes(7, frames), 1500); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return // the ledgers do not settle after an error
	}
	settled(t, a, b)
	if c := n.Counters("a"); c.RNR != 0 {
		t.Errorf("receiver not ready %d times", c.RNR)
	}
}

// TestBackPressure sends frames to a port that is full. The sender must stop reading its own
// port, and no frame may be lost.
func TestBackPressure(t *testing.T) {
	cfg := patient(messaging.Config{Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 8}}})
	_, a, b := newPair(t, cfg, cfg)
	ctx := deadline(t)
	const frames = 5000 // 5 MB, more than the sockets and the pool hold
	sizes := slices.Repeat([]int{1000}, frames)
	sent := sendAll(ctx, a.wires[0], sizes, 1500)
	until(t, func() error {
		if s := b.conn.Stats().Channels[0]; s.RxPortBusy == 0 {
			return fmt.Errorf("the port has never been full: %+v", s)
		}
		if s := a.conn.Stats().Channels[0]; s.TxNoCredit == 0 {
			return fmt.Errorf("the sender has never been out of credit: %+v", s)
		}
		return nil
	})
	if err := errors.Join(receiveAll(ctx, b.wires[0], sizes, 1500), <-sent); err != nil {
		t.Fatal(err)
	}
	settled(t, a, b)
}

// TestTooLongForEveryPool sends frames that fit no pool, and others. The former must be
// dropped and counted, and the others arrive.
func TestTooLongForEveryPool(t *testing.T) {
	small := patient(messaging.Config{Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 8}}, MaxPools: 1})
	_, a, b := newPair(t, small, small)
	ctx := deadline(t)
	for _, n := range []int{100, 2049, 60000, 2048, 65535, 200} {
		if err := a.wires[0].Send(ctx, frame(uint64(n), n, 1500)); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, vnet.MaxFrame+1)
	for _, n := range []int{100, 2048, 200} {
		got, err := b.wires[0].Receive(ctx, buf)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, frame(uint64(n), n, 1500)) {
			t.Fatalf("%d bytes arrived, %d were expected", len(got), n)
		}
	}
	if s := a.conn.Stats().Channels[0]; s.TxTooLong != 3 {
		t.Errorf("%d frames counted as too long, not 3", s.TxTooLong)
	}
}

func TestFramesOverTheMTU(t *testing.T) {
	cfg := patient(messaging.Config{MTU: 1500})
	_, a, b := newPair(t, cfg, cfg)
	ctx := deadline(t)
	b.conn.SetMTU(1000)
	for _, n := range []int{1024 + 4, 1500, 900} {
		if err := a.wires[0].Send(ctx, frame(1, n, 1500)); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, vnet.MaxFrame+1)
	for _, n := range []int{1028, 900} { // 1028 = header 10 + Ethernet 14 + tag 4 + MTU 1000
		got, err := b.wires[0].Receive(ctx, buf)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != n {
			t.Fatalf("%d bytes arrived, %d were expected", len(got), n)
		}
	}
	if s := b.conn.Stats().Channels[0]; s.RxOverMTU != 1 {
		t.Errorf("%d frames counted over the MTU", s.RxOverMTU)
	}
}

func TestRequests(t *testing.T) {
	echo := func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
		if t == protocol.CfgOffloads {
			return protocol.CfgDenied, nil
		}
		return protocol.CfgOK, slices.Clone(data)
	}
	withEcho := patient(messaging.Config{OnRequest: echo})
	_, a, b := newPair(t, withEcho, patient(messaging.Config{}))
	ctx := deadline(t)

	var wg sync.WaitGroup
	for i := range 50 { // far more than may be unanswered at once
		wg.Go(func() {
			want := protocol.AppendMTU(nil, 1000+i)
			got, err := b.conn.Request(ctx, protocol.CfgMTU, want)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("request %d: %x, %v", i, got, err)
			}
		})
	}
	wg.Wait()

	var status *messaging.StatusError
	if _, err := b.conn.Request(ctx, protocol.CfgOffloads, nil); !errors.As(err, &status) ||
		status.Status != protocol.CfgDenied {
		t.Errorf("a refused request: %v", err)
	}
	if _, err := a.conn.Request(ctx, protocol.CfgMTU, nil); !errors.As(err, &status) ||
		status.Status != protocol.CfgUnsupported {
		t.Errorf("a request that nobody answers: %v", err)
	}
	if err := a.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.conn.Request(ctx, protocol.CfgMTU, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a request after Close: %v", err)
	}
}

// ended waits for the end of h's session and returns its reason.
func ended(t *testing.T, h *endpoint) error {
	t.Helper()
	select {
	case <-h.conn.Done():
		return h.conn.Err()
	case <-deadline(t).Done():
		t.Fatalf("%s: the session goes on", h.name)
		return nil
	}
}

func TestSilentPeer(t *testing.T) {
	quick := messaging.Config{KeepAlive: 10 * time.Millisecond, PeerTimeout: 200 * time.Millisecond}
	n, a, _ := newPair(t, quick, quick)
	n.Stall("b") // like a paused machine: it answers nothing, and nothing fails
	if err := ended(t, a); !errors.Is(err, messaging.ErrPeerSilent) {
		t.Errorf("%v", err)
	}
	n.Resume("b")
}

// TestKeepAlive expects that keep-alives keep an idle session up for twice its time-out.
func TestKeepAlive(t *testing.T) {
	// The time-out is longer than a goroutine has to wait on a busy machine. Otherwise that
	// endpoint would be declared dead.
	quick := messaging.Config{KeepAlive: 80 * time.Millisecond, PeerTimeout: 2 * time.Second}
	_, a, b := newPair(t, quick, quick)
	// In each interval, at most one keep-alive and one reply arrive.
	least := 2 * 2 * uint64(quick.PeerTimeout/quick.KeepAlive)
	until(t, func() error {
		if err := errors.Join(a.conn.Err(), b.conn.Err()); err != nil {
			t.Fatal(err)
		}
		if r := a.conn.Stats().ControlReceived; r < least {
			return fmt.Errorf("%d messages from an idle peer", r)
		}
		return nil
	})
}

func TestDeadPeer(t *testing.T) {
	n, a, _ := newPair(t, patient(messaging.Config{}), patient(messaging.Config{}))
	n.Kill("b")
	if err := a.wires[0].Send(deadline(t), frame(1, 100, 1500)); err != nil {
		t.Fatal(err)
	}
	// The write fails on the data channel.
	if err := ended(t, a); !errors.Is(err, &fabric.WCError{Status: fabric.StatusRetryExcErr}) {
		t.Errorf("%v", err)
	}
}

// TestFirstError makes a write fail while its sender sleeps and does not poll for completions.
// The receiver sees only that its queue pair was flushed, but the session must end with the
// error of the write.
func TestFirstError(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			cfg := patient(messaging.Config{Mode: mode})
			n, a, b := newPair(t, cfg, cfg)
			settled(t, a, b)
			control := a.conn.Addresses()[0].QPN
			n.OnSend("a", func(qpn uint32, _ fabric.SendWR) fabric.Status {
				if qpn == control {
					return fabric.StatusSuccess
				}
				return fabric.StatusRemOpErr
			})
			n.Delay("a", 20*time.Millisecond) // so that the sender sleeps when the write fails
			if err := a.wires[0].Send(deadline(t), frame(1, 100, 1500)); err != nil {
				t.Fatal(err)
			}
			if err := ended(t, a); !errors.Is(err, &fabric.WCError{Status: fabric.StatusRemOpErr}) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOwnDeviceGone kills the device of an endpoint. The session must end with another error
// than the peer's silence.
func TestOwnDeviceGone(t *testing.T) {
	cfg := patient(messaging.Config{KeepAlive: 10 * time.Millisecond})
	n, a, _ := newPair(t, cfg, cfg)
	n.Kill("a")
	if err := ended(t, a); errors.Is(err, messaging.ErrPeerSilent) {
		t.Error(err)
	}
}

func TestConnectRefusesFewReceives(t *testing.T) {
	n := fabrictest.New()
	a, b := newEndpoint(t, n, "a", messaging.Config{}), newEndpoint(t, n, "b", messaging.Config{})
	err := a.conn.Connect(b.conn.Addresses(), protocol.ControlReceives(protocol.ModeImm, 1, 2)-1)
	if !errors.Is(err, messaging.ErrControlReceives) {
		t.Errorf("%v", err)
	}
	if err := a.conn.Connect(b.conn.Addresses()[:1], 1000); err == nil {
		t.Error("a peer without data channels was accepted")
	}
}

func TestConfigErrors(t *testing.T) {
	dev := fabrictest.New().Device("a")
	defer dev.Close()
	for _, c := range []messaging.Config{
		{Queues: 17},
		{Queues: -1},
		{Pools: []messaging.PoolConfig{}},
		{Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: messaging.MaxElements + 1}}},
		{Pools: []messaging.PoolConfig{{ElementSize: messaging.MaxElementSize + 1, Elements: 1}}},
		{Pools: []messaging.PoolConfig{{ElementSize: 63, Elements: 1}}},
		{SendSlots: 32, Batch: 16, SignalEvery: 16},
		{PeerTimeout: time.Second, KeepAlive: time.Second},
		{Mode: "pull"},
		{MaxPools: 1},
		{MaxPools: messaging.MaxPools + 1},
		{PeerPools: messaging.MaxPools + 1},
		{Mode: protocol.ModeSend, MaxPools: 2},
		{Mode: protocol.ModeSendUC, Pools: []messaging.PoolConfig{
			{ElementSize: 2048, Elements: 8}, {ElementSize: 65536, Elements: 8},
		}},
		{MaxMemory: 1 << 20},
		{PoolIdle: 3},
		{PoolIdle: -time.Second},
		{Pools: slices.Repeat([]messaging.PoolConfig{{ElementSize: 64, Elements: messaging.MaxElements}}, 17), MaxPools: 17},
	} {
		c.Device = dev
		if conn, err := messaging.New(c); err == nil {
			conn.Close()
			t.Errorf("accepted: %+v", c)
		}
	}
}

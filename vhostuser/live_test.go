package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/vnet"
)

// openLive opens a device with one pair of rings.
func openLive(t *testing.T, a Address) *Device {
	t.Helper()
	d, err := Open(Config{Address: a, Pairs: 1, Offloads: vnet.AllOffloads, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d.lendFrom = lentFrom
	return d
}

// meet returns a function that connects as a front end to the device at an address.
func meet(t *testing.T, a Address) func() *net.UnixConn {
	t.Helper()
	at := &net.UnixAddr{Name: a.Path, Net: "unix"}
	how := func() (*net.UnixConn, error) { return net.DialUnix("unix", nil, at) }
	if a.Client {
		l, err := net.ListenUnix("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if err := l.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		how = l.AcceptUnix
	}
	return func() *net.UnixConn {
		t.Helper()
		c, err := how()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// echoing returns a device whose worker sends all frames back until the test ends, and its address.
func echoing(t *testing.T) (Address, *Device) {
	t.Helper()
	a := Address{Path: filepath.Join(t.TempDir(), "s")}
	d := openLive(t, a)
	t.Cleanup(func() { d.Close() })
	e := newEcho(t)
	e.start(d.Queues()[0])
	t.Cleanup(e.stop)
	return a, d
}

// TestMemoryWhileRingsRun adds memory as a front end, moves the buffers there, removes the old
// memory, and stops and starts rings, while frames are sent in both directions. It expects no frame
// to be lost, changed or doubled.
func TestMemoryWhileRingsRun(t *testing.T) {
	for name, feats := range kinds {
		t.Run(name, func(t *testing.T) {
			a, d := echoing(t)
			g := newDriver(t, feats)
			g.start(meet(t, a)())
			for i := range 8 {
				g.exchange(g.got + 100)
				g.swap()
				g.exchange(g.got + 10)
				g.restartRing(i % 2)
			}
			g.exchange(g.sent)
			if s := d.Status(); s.Connections != 1 || s.LastError != "" || s.Dropped != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestMemoryTakenAway removes memory as a front end that still has buffers there. It expects the
// connection to be closed, and the next front end to be served.
func TestMemoryTakenAway(t *testing.T) {
	for name, feats := range kinds {
		t.Run(name, func(t *testing.T) {
			a, d := echoing(t)
			connect := meet(t, a)
			begin := func() *driver {
				g := newDriver(t, feats)
				g.start(connect())
				g.exchange(50)
				return g
			}
			g := begin()
			g.plug(remMemReg, g.half)
			g.post(1, g.rings[1].pieces(g.r, 1000, 3))
			const want = "where there is no memory"
			testenv.Eventually(t, func() bool { return strings.Contains(d.Status().LastError, want) }, want)
			testenv.Explained(t, d.Status().LastError)
			begin()
		})
	}
}

// TestMemoryReplaced removes all memory as a front end and adds it again, in parts and repeatedly,
// while chains are available. It expects a ring to continue as soon as the ring has its memory.
func TestMemoryReplaced(t *testing.T) {
	for name, feats := range kinds {
		t.Run(name, func(t *testing.T) {
			a, d := echoing(t)
			g := newDriver(t, feats)
			g.start(meet(t, a)())
			for range 8 {
				for until := g.got + 50; g.got < until; {
					g.step(until + 50) // so that some frames are in flight
				}
				for _, r := range []request{remMemReg, addMemReg} {
					for range 2 { // as QEMU does, for each pair of rings
						if r == remMemReg {
							g.memory(r, 0, buffersAt)
						}
						g.plug(r, g.half)
						if r == addMemReg {
							g.memory(r, 0, buffersAt)
						}
					}
				}
			}
			g.exchange(g.sent)
			if s := d.Status(); s.Connections != 1 || s.LastError != "" || s.Dropped != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestRestart restarts the back end while the front end stays, and breaks the connection while the
// back end stays, with frames in flight in both directions. It expects no frame to be lost, changed
// or doubled. A packed ring has to be initialized again by its driver: see
// TestRestartBehindTestpmd.
func TestRestart(t *testing.T) {
	for _, name := range []string{"split", "split with event index"} {
		for _, client := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", server", true: ", client"}[client], func(t *testing.T) {
				a := Address{Path: filepath.Join(t.TempDir(), "s"), Client: client}
				connect, e, g := meet(t, a), newEcho(t), newDriver(t, kinds[name])
				d := openLive(t, a)
				e.start(d.Queues()[0])
				defer func() { // d is the last device then
					e.stop()
					d.Close()
				}()
				for range 3 {
					g.start(connect())
					for until := g.got + 200; g.got < until; {
						g.step(until + 100) // so that some frames are in flight
					}
					if err := g.conn.Close(); err != nil {
						t.Fatal(err)
					}
					g.start(connect())
					for until := g.got + 200; g.got < until; {
						g.step(until + 100)
					}
					e.stop()
					if s := d.Status(); s.LastError != "" && !strings.Contains(s.LastError, "connect") {
						t.Errorf("%+v", s)
					}
					if err := d.Close(); err != nil {
						t.Error(err)
					}
					if _, err := g.conn.Read(make([]byte, 1)); err == nil {
						t.Errorf("the connection has not ended: %v", err)
					}
					d = openLive(t, a)
					e.start(d.Queues()[0])
				}
				g.start(connect())
				g.exchange(g.sent)
			})
		}
	}
}

// TestDown sets a device down while it has a front end. It expects frames that the front end
// transmits to wait, frames to the front end to be lost, and announcements to be refused until the
// device is up again.
func TestDown(t *testing.T) {
	for name, feats := range kinds {
		t.Run(name, func(t *testing.T) {
			a := Address{Path: filepath.Join(t.TempDir(), "s")}
			d := openLive(t, a)
			defer d.Close()
			g := newDriver(t, feats)
			g.start(meet(t, a)())
			q, ops := d.Queues()[0], readOps(4)
			g.step(1)
			for range 2 { // the second time has no effect
				if err := d.SetUp(false); err != nil {
					t.Fatal(err)
				}
			}
			if up, _ := d.Up(); !up {
				t.Error("the link is down as well")
			}
			if q.ReadFrames(ops); !errors.Is(ops[0].Err, errAgain) {
				t.Errorf("a frame of %d bytes is read: %v", len(ops[0].Frame), ops[0].Err)
			}
			frame := g.numbered(0)[2:]
			writes := []vnet.WriteOp{{Head: frame}}
			if n := q.WriteFrames(writes); n != 1 || !errors.Is(writes[0].Err, errDown) {
				t.Errorf("%d frames are written: %v", n, writes[0].Err)
			}
			if err := d.Announce(frame); !errors.Is(err, errDown) {
				t.Errorf("announced: %v", err)
			}
			if err := d.SetUp(true); err != nil {
				t.Fatal(err)
			}
			if n := q.ReadFrames(ops); n != 1 || ops[0].Err != nil {
				t.Errorf("%d frames are read: %v", n, ops[0].Err)
			}
			if err := d.Announce(frame); err != nil {
				t.Error(err)
			}
			g.exchange(1)
		})
	}
}

// TestBlockedBurst simulates a burst on a ring that does not end, which a front end can
// cause, and sends a message that waits for the burst. It expects the status to be
// available, and the device to carry out commands.
func TestBlockedBurst(t *testing.T) {
	a := Address{Path: filepath.Join(t.TempDir(), "s")}
	d := openLive(t, a)
	defer d.Close()
	g := newDriver(t, modern)
	g.start(meet(t, a)())
	burst := &d.rings[1].mu
	burst.Lock()
	g.say(setVringEnable, 0, ofRing(0, 0))
	done := make(chan error)
	go func() {
		for range 100 {
			if s := d.Status(); s.Rings != 2 {
				done <- fmt.Errorf("%+v", s)
				return
			}
			time.Sleep(time.Millisecond) // so that the message arrives
		}
		done <- d.SetUp(false)
	}()
	select {
	case err := <-done:
		burst.Unlock()
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testenv.Patience):
		burst.Unlock()
		t.Errorf("everybody waits for the burst: %v", <-done)
	}
}

// TestFeaturesWhileStarted changes features as a front end while a ring is started and disabled. It
// expects an error: the frames in the ring have headers of the old features.
func TestFeaturesWhileStarted(t *testing.T) {
	a, d := echoing(t)
	g := newDriver(t, modern)
	g.start(meet(t, a)())
	g.order(setVringEnable, ofRing(0, 0))
	g.order(setVringEnable, ofRing(1, 0))
	g.order(setFeatures, numbers(uint64(g.feats))) // the same features, as QEMU does for each pair
	answer := g.say(setFeatures, flagNeedReply, numbers(uint64(g.feats&^featMrgRxbuf)))
	if binary.LittleEndian.Uint64(answer) == 0 {
		t.Error("the features change")
	}
	const want = "other features while ring 0 is used"
	testenv.Eventually(t, func() bool { return strings.Contains(d.Status().LastError, want) }, want)
}

// TestOneReason breaks a rule for a ring as a front end, which causes further errors. It expects
// one reason in the status, on one line.
func TestOneReason(t *testing.T) {
	a, d := echoing(t)
	connect := meet(t, a)
	for want, does := range map[string]func(g *driver){
		"a ring at 0x10 is in no region": func(g *driver) { g.say(setVringAddr, 0, numbers(0, 0x10, 0x20, 0x30, 0)) },
		"instead of an eventfd":          func(g *driver) { g.say(setVringKick, 0, numbers(0), g.rings[0].fd) },
	} {
		g := newDriver(t, modern)
		g.start(connect())
		does(g)
		testenv.Eventually(t, func() bool { return d.Status().LastError != "" }, "the connection has ended")
		if got := d.Status().LastError; !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s, want %q", got, want)
		}
	}
}

// TestRingFails sends a message about a ring as a front end while that ring fails. It expects the
// connection to end.
func TestRingFails(t *testing.T) {
	a, d := echoing(t)
	connect := meet(t, a)
	for range 5 {
		g := newDriver(t, modern)
		g.start(connect())
		g.post(1, []buffer{{1, 100}})
		// The connection may have ended before.
		m := messageOf(setVringNum, 0, ofRing(1, ringSize))
		if _, err := g.conn.Write(m); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			t.Fatal(err)
		}
		testenv.Eventually(t, func() bool { return d.Status().LastError != "" }, "the connection has ended")
	}
}

// TestDisabledRing disables the transmit ring of a front end, as for a guest that uses fewer
// queues. It expects the frames of that ring to be dropped and their chains to be returned. In a
// ring that has not been enabled yet, frames have to wait.
func TestDisabledRing(t *testing.T) {
	for name, feats := range kinds {
		t.Run(name, func(t *testing.T) {
			a := Address{Path: filepath.Join(t.TempDir(), "s")}
			d, e := openLive(t, a), newEcho(t)
			defer d.Close()
			e.drops.Store(true)
			e.start(d.Queues()[0])
			defer e.stop()
			g := newDriver(t, feats)
			g.start(meet(t, a)())
			settled := func() {
				t.Helper()
				for len(g.posted[1]) > 0 {
					if g.take(1); time.Now().After(g.late) {
						t.Fatalf("%d chains are not given back", len(g.posted[1]))
					}
				}
			}
			g.exchange(10)
			for range 3 {
				settled()
				g.order(setVringEnable, ofRing(1, 0))
				before := d.Status().Refused
				for range 5 {
					g.post(1, []buffer{g.rings[1].alloc(112)})
				}
				settled()
				if n := d.Status().Refused - before; n != 5 {
					t.Errorf("%d frames are counted", n)
				}
				g.restartRing(1)
				g.order(setVringEnable, ofRing(1, 1))
				g.exchange(g.got + 10)
			}
			g.order(resetDevice, nil)
			for i := range g.rings {
				fresh := newMemoryOf(t, feats, i, g.rings[i].base+1<<31)
				g.rings[i], g.posted[i] = fresh, nil
			}
			g.memory(addMemReg, 0, buffersAt)
			g.plug(addMemReg, g.half)
			g.use(g.half)
			g.sent = g.got
			for i := range g.rings {
				g.startRing(i, 1<<15)
			}
			for g.sent < g.got+5 {
				g.step(g.got + 5)
			}
			for i := range g.rings {
				g.order(setVringEnable, ofRing(i, 1))
			}
			g.exchange(g.sent)
		})
	}
}

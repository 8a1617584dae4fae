package vhostuser_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
	"github.com/splitnic/splitnic/vnet/frametest"
)

// testpmd runs DPDK's testpmd on a socket. testpmd sends all frames back on the same port.
func testpmd(t *testing.T, a vhostuser.Address, options string, more ...string) (stop func()) {
	t.Helper()
	options = ",path=" + a.Path + options
	if a.Client {
		options += ",server=1"
	}
	return testenv.Testpmd(t, "net_virtio_user0"+options, append([]string{"--forward-mode=io"}, more...)...)
}

// frame returns a frame of n bytes whose content depends on its number in the stream.
func frame(seq uint64, n int) []byte {
	f := make([]byte, n)
	frametest.Fill(f[vnet.MinFrame:], seq)
	copy(f[vnet.HdrLen:], []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5})
	binary.BigEndian.PutUint64(f[vnet.MinFrame:], seq)
	return f
}

// layer connects each port with a wire, through data channels over the fabric in memory.
func layer(t *testing.T, ports []messaging.Port) (wires []*porttest.Wire) {
	t.Helper()
	n := fabrictest.New()
	var devices [2]fabric.Device
	for i := range devices {
		d := n.Device(fmt.Sprint(i))
		t.Cleanup(func() { d.Close() })
		devices[i] = d
	}
	return layerOn(t, devices, ports)
}

// layerOn is like layer, but over these devices.
func layerOn(t *testing.T, devices [2]fabric.Device, ports []messaging.Port) (wires []*porttest.Wire) {
	t.Helper()
	var far []messaging.Port
	for range ports {
		p, w := porttest.New(t, 1<<20)
		far, wires = append(far, porttest.Batched{Single: p}), append(wires, w)
	}
	var conns []*messaging.Conn
	for _, d := range devices {
		c, err := messaging.New(messaging.Config{
			Device: d, Timing: fabric.Timing{Timeout: 18}, Mode: protocol.ModeImm, Queues: len(ports), MTU: 9000,
			PeerTimeout: time.Minute,
			Pools:       messaging.DefaultPools(protocol.ModeImm, 9000),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	for i, c := range conns {
		if err := c.Connect(conns[1-i].Addresses(), conns[1-i].ControlReceives()); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range conns {
		if err := c.Start([][]messaging.Port{ports, far}[i]); err != nil {
			t.Fatal(err)
		}
	}
	return wires
}

func open(t *testing.T, a vhostuser.Address, pairs int) *vhostuser.Device {
	t.Helper()
	d, err := vhostuser.Open(vhostuser.Config{
		Address: a, Pairs: pairs, Offloads: vnet.AllOffloads, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func portsOf(d *vhostuser.Device) (ports []messaging.Port) {
	for _, q := range d.Queues() {
		ports = append(ports, q)
	}
	return ports
}

// waitUp waits until the device is up, or until it is down if want is false. The device is up while
// a front end receives.
func waitUp(t testing.TB, d *vhostuser.Device, want bool) {
	t.Helper()
	late := time.After(testenv.Patience)
	for {
		up, changed := d.Up()
		if up == want {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("up is not %t: %+v", want, d.Status())
		}
	}
}

// echo sends frames on a wire and expects them back, in order.
func echo(t *testing.T, w *porttest.Wire, frames int) {
	t.Helper()
	echoUpTo(t, w, frames, 1514)
}

// echoUpTo is like echo, for frames of 60 to longest bytes.
func echoUpTo(t *testing.T, w *porttest.Wire, frames, longest int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	size := func(i int) int { return vnet.HdrLen + 60 + i*37%(longest-59) }
	buf := make([]byte, vnet.MaxFrame+1)
	const ahead = 100
	sent := 0
	for i := range frames {
		for ; sent < min(frames, i+ahead); sent++ {
			if err := w.Send(ctx, frame(uint64(sent), size(sent))); err != nil {
				t.Fatal(err)
			}
		}
		got, err := w.Receive(ctx, buf)
		if err != nil {
			t.Fatalf("frame %d of %d sent: %v", i, sent, err)
		}
		if want := frame(uint64(i), size(i)); !bytes.Equal(got, want) {
			t.Fatalf("frame %d of %d bytes: %d bytes come back:\n%x\n%x", i, len(want), len(got), got[:64], want[:64])
		}
	}
}

// TestTestpmd sends frames through a data channel and two rings to DPDK's testpmd and expects them
// back, in each form of ring and of connection. Then another testpmd replaces the first one.
func TestTestpmd(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		client  bool
		queues  int
	}{
		"split":                 {options: ",queue_size=256", queues: 1},
		"split without merging": {options: ",mrg_rxbuf=0", queues: 1},
		"packed":                {options: ",packed_vq=1", queues: 1},
		"packed in order":       {options: ",packed_vq=1,in_order=1,mrg_rxbuf=0", queues: 1},
		"client":                {client: true, queues: 1},
		"two queues":            {options: ",queues=2", queues: 2},
	} {
		t.Run(name, func(t *testing.T) {
			a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s"), Client: c.client}
			d := open(t, a, c.queues)
			t.Cleanup(func() { d.Close() })
			wires := layer(t, portsOf(d))
			for range 2 {
				stop := testpmd(t, a, c.options)
				waitUp(t, d, true)
				echo(t, wires[0], 3000)
				if s := d.Status(); s.ReadFrames < 3000 || s.LastError != "" || !strings.Contains(s.FrontEnd, "testpmd") {
					t.Errorf("%+v", s)
				}
				stop()
				waitUp(t, d, false)
			}
		})
	}
}

// TestTestpmdInPieces is like TestTestpmd, with frames that are longer than a buffer of testpmd.
func TestTestpmdInPieces(t *testing.T) {
	for name, options := range map[string]string{"split": "", "packed": ",packed_vq=1"} {
		t.Run(name, func(t *testing.T) {
			a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
			d := open(t, a, 1)
			t.Cleanup(func() { d.Close() })
			wires := layer(t, portsOf(d))
			const multiSegs = "--tx-offloads=0x8000"
			testpmd(t, a, options, "--max-pkt-len=9018", "--enable-scatter", multiSegs)
			waitUp(t, d, true)
			echoUpTo(t, wires[0], 3000, 9014)
			if s := d.Status(); s.ReadFrames < 3000 || s.LastError != "" {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestRestartBehindTestpmd restarts the back end while testpmd, which listens, stays. It expects
// frames to be exchanged again.
func TestRestartBehindTestpmd(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		queues  int
	}{
		"split": {queues: 1}, "packed": {",packed_vq=1", 1}, "two queues": {",queues=2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s"), Client: true}
			testpmd(t, a, c.options)
			for i := range 3 {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					d := open(t, a, c.queues)
					t.Cleanup(func() { d.Close() })
					wires := layer(t, portsOf(d))
					waitUp(t, d, true)
					echo(t, wires[0], 2000)
					if s := d.Status(); s.ReadFrames < 2000 || s.Connections != 1 {
						t.Errorf("%+v", s)
					}
				})
			}
		})
	}
}

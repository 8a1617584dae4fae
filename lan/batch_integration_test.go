package lan_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// portFixture returns a port of this kind, and a station on its LAN.
func portFixture(t testing.TB, kind string, cfg lan.Config) (lan.Interface, *testenv.PortFixture) {
	s := newTestbed(t)
	testenv.DisableIPv6(t, s.station)
	// Only one processor receives frames. Otherwise frames that several processors send could be
	// received by several processors at the same time, and be reordered.
	for ns, dev := range map[string]string{s.unit: nic, s.station: "eth0"} {
		testenv.Run(t, ns, "sh", "-c", "echo 1 >/sys/class/net/"+dev+"/queues/rx-0/rps_cpus")
	}
	cfg.MAC, cfg.Offloads = macA, vnet.AllOffloads
	p := s.open(t, s.spec(t, kind), cfg)
	if q, ok := p.Queues()[0].(interface{ Rings() bool }); ok && q.Rings() == cfg.NoRing && haveRings(t) {
		t.Errorf("rings: %t, although NoRing is %t", q.Rings(), cfg.NoRing)
	}
	r := &testenv.PortFixture{
		Port:   p.Queues()[0],
		Here:   macA,
		There:  macC,
		Send:   testenv.SenderRaw(t, s.station, "eth0"),
		Super:  true,
		Close:  p.Close,
		Listen: func() *testenv.Listener { return testenv.ListenRaw(t, s.station, "eth0") },
		Down: func() {
			if err := p.SetUp(false); err != nil {
				t.Fatal(err)
			}
		},
		Gone: func() {
			testenv.With(t, s.unit, func(h *netlink.Handle) error {
				return h.LinkDel(testenv.Link(t, s.unit, p.Name()))
			})
		},
	}
	if kind != "tap" { // a tap drops frames that do not fit into the queue of the bridge's port
		testenv.NeedTools(t, "tc")
		r.Slow = func(on bool) {
			rate := "50mbit" // not faster than the station can receive
			if on {
				rate = "80bit"
			}
			testenv.Run(t, s.unit, "tc", "qdisc", "replace", "dev", nic, "root", "handle", "1:", "tbf",
				"rate", rate, "burst", "20kb", "limit", "100mb")
			if !on { // the qdisc does not wake by itself before the old rate permits a frame
				testenv.SendRaw(t, s.unit, nic, probe(macC, macC, 60, 'x'))
			}
		}
	}
	return p, r
}

// haveRings reports whether the kernel has io_uring for TAP devices.
func haveRings(t testing.TB) bool {
	d, err := tap.Open(tap.Config{NetNS: testenv.NetNS(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	return d.Queues()[0].Rings()
}

func TestNetnsBatches(t *testing.T) {
	testenv.NeedTUN(t)
	for _, tc := range []struct {
		name, kind string
		cfg        lan.Config
		change     func(lan.Interface, *testenv.PortFixture) error
	}{
		{name: "packet", kind: "packet"},
		{name: "tap", kind: "tap"},
		{name: "tap without ring", kind: "tap", cfg: lan.Config{NoRing: true}},
		{name: "macvtap", kind: "macvtap"},
		{name: "macvtap without ring", kind: "macvtap", cfg: lan.Config{NoRing: true}},
		{name: "macvtap with a socket beside", kind: "macvtap", change: func(p lan.Interface, _ *testenv.PortFixture) error {
			return p.SetPromisc(true)
		}},
		{name: "the socket beside a macvtap", kind: "macvtap", change: func(p lan.Interface, r *testenv.PortFixture) error {
			r.Here = macB
			return p.SetUnicast([]net.HardwareAddr{macB})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testenv.TestBatches(t, func(t *testing.T) *testenv.PortFixture {
				p, r := portFixture(t, tc.kind, tc.cfg)
				if tc.change != nil {
					if err := tc.change(p, r); err != nil {
						t.Fatal(err)
					}
				}
				return r
			})
		})
	}
}

// TestNetnsMergedBatches reads a port that merges the frames of a macvtap and of the packet socket
// beside the macvtap. It expects neither source to prevent the other from being read, and the order
// of each source to stay.
func TestNetnsMergedBatches(t *testing.T) {
	testenv.NeedTUN(t)
	p, r := portFixture(t, "macvtap", lan.Config{})
	if err := p.SetUnicast([]net.HardwareAddr{macB}); err != nil {
		t.Fatal(err)
	}
	const each = 300
	other := *r
	other.Here = macB
	var frames [][]byte
	for i := range uint32(each) {
		frames = append(frames, r.Probe(true, i, 60+int(i)), other.Probe(true, i, 60+int(i)))
	}
	r.Send(frames...)
	var got [2][][]byte
	ops := testenv.Slots(16, vnet.Headroom+vnet.MaxFrame+1)
	testenv.Eventually(t, func() bool {
		for len(got[0])+len(got[1]) < len(frames) {
			n := r.Port.ReadFrames(ops)
			for i := range ops[:n] {
				if errors.Is(ops[i].Err, unix.EAGAIN) && i == n-1 {
					return false
				}
				if ops[i].Err != nil {
					t.Fatalf("operation %d of %d: %v", i, n, ops[i].Err)
				}
				switch f := ops[i].Frame; {
				case bytes.Equal(f[vnet.HdrLen:vnet.HdrLen+6], macA):
					got[0] = append(got[0], slices.Clone(f))
				case bytes.Equal(f[vnet.HdrLen:vnet.HdrLen+6], macB):
					got[1] = append(got[1], slices.Clone(f))
				}
			}
			if d := len(got[0]) - len(got[1]); d > 200 || d < -200 {
				t.Fatalf("%d and %d frames read: they do not take turns", len(got[0]), len(got[1]))
			}
		}
		return true
	}, "%d frames", len(frames))
	for side, frames := range got {
		for i, f := range frames {
			if binary.BigEndian.Uint32(f[vnet.HdrLen+14:]) != uint32(i) || len(f) != vnet.HdrLen+60+i {
				t.Fatalf("to %v, frame %d was read as another one", []net.HardwareAddr{macA, macB}[side], i)
			}
		}
	}
}

func BenchmarkNetnsBatches(b *testing.B) {
	testenv.NeedTUN(b)
	for name, cfg := range map[string]lan.Config{"packet": {}, "macvtap": {}, "macvtap loop": {NoRing: true}} {
		kind, _, _ := strings.Cut(name, " ")
		b.Run(name, func(b *testing.B) {
			_, r := portFixture(b, kind, cfg)
			testenv.BenchBatches(b, r)
		})
	}
}

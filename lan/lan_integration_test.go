package lan_test

import (
	"bytes"
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

// testbed has an I/O unit with a network card, and a station on the same network.
type testbed struct {
	unit, station string // network namespaces
}

const (
	nic   = "eth1"
	kinds = "macvtap packet tap"
)

// newTestbed makes the network: a veth pair, with nic in unit and eth0 in station.
func newTestbed(t testing.TB) testbed {
	t.Helper()
	s := testbed{unit: testenv.NetNS(t), station: testenv.NetNS(t)}
	testenv.DisableIPv6(t, s.unit)
	testenv.Veth(t, s.unit, nic, s.station, "eth0")
	return s
}

// spec prepares nic for this kind of LAN interface, and returns the specification.
func (s testbed) spec(t testing.TB, kind string) string {
	t.Helper()
	if kind == "tap" && testenv.Link(t, s.unit, "br0") != nil {
		return "tap:br0"
	}
	if kind == "tap" {
		testenv.Bridge(t, s.unit, "br0", nic)
		return "tap:br0"
	}
	return kind + ":" + nic
}

// open opens a port, which is closed at the end of the test.
func (s testbed) open(t testing.TB, spec string, cfg lan.Config) lan.Interface {
	t.Helper()
	cfg.NetNS = s.unit
	p, err := lan.Open(spec, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if strings.HasPrefix(spec, "tap:") {
		testenv.Eventually(t, func() bool {
			return testenv.Link(t, s.unit, p.Name()).Attrs().OperState == netlink.OperUp
		}, "%s being up", p.Name())
	}
	return p
}

// host is the host of a port: a TAP device in a namespace of its own. Frames are relayed between
// the TAP device and the port.
type host struct {
	ns       string
	mac      net.HardwareAddr
	dev      *tap.Device
	out, in  []*testenv.Traffic // traffic to and from the LAN, by queue
	port     lan.Interface
	offloads vnet.Offloads
}

// connect makes a host with the given MAC number and addresses.
func (s testbed) connect(t *testing.T, spec string, number byte, queues int, addrs ...string) *host {
	t.Helper()
	h := &host{ns: testenv.NetNS(t), mac: net.HardwareAddr{2, 0, 0, 0, 1, number}}
	h.port = s.open(t, spec, lan.Config{MAC: h.mac, Queues: queues, Offloads: vnet.AllOffloads})
	h.offloads = h.port.Offloads()
	d, err := tap.Open(tap.Config{Name: "sn0", NetNS: h.ns, Queues: queues, Offloads: h.offloads, MAC: h.mac})
	if err != nil {
		t.Fatal(err)
	}
	h.dev = d
	t.Cleanup(func() { d.Close() })
	// Set the device up before frames come from the card: a device that is down refuses frames.
	if err := errors.Join(d.Up(), d.SetCarrier(true)); err != nil {
		t.Fatal(err)
	}
	r := testenv.NewRelay(t)
	for i, q := range h.port.Queues() {
		out, in := r.Join(d.Queues()[i], q, 1500)
		h.out, h.in = append(h.out, out), append(h.in, in)
	}
	for _, a := range addrs {
		testenv.Address(t, h.ns, "sn0", a)
	}
	return h
}

// total returns the sum of one counter of several directions.
func total(trs []*testenv.Traffic, counter func(*testenv.Traffic) int64) int64 {
	n := int64(0)
	for _, tr := range trs {
		n += counter(tr)
	}
	return n
}

func super(tr *testenv.Traffic) int64   { return tr.TCP.Load() }
func refused(tr *testenv.Traffic) int64 { return tr.Refused.Load() }

// TestNetnsLAN expects two hosts on one card to communicate with a station on the LAN and with each
// other.
func TestNetnsLAN(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		for _, queues := range []int{1, 2} {
			t.Run(kind+map[int]string{1: "", 2: " two queues"}[queues], func(t *testing.T) {
				testenv.NoLeaks(t)
				s := newTestbed(t)
				testenv.Address(t, s.station, "eth0", "10.8.0.1/24")
				testenv.Address(t, s.station, "eth0", "fd08::1/64")
				spec := s.spec(t, kind)
				before := testenv.Links(t, s.unit)
				a := s.connect(t, spec, 1, queues, "10.8.0.2/24", "fd08::2/64")
				b := s.connect(t, spec, 2, queues, "10.8.0.3/24", "fd08::3/64")

				testenv.Ping(t, a.ns, "10.8.0.1")
				testenv.Ping(t, s.station, "fd08::3", "-s", "4000")
				testenv.Exchange(t, s.station, "10.8.0.1", a.ns, 16<<20)
				testenv.Exchange(t, s.station, "fd08::1", b.ns, 16<<20)
				for _, h := range []*host{a, b} {
					if out, in := total(h.out, super), total(h.in, super); out == 0 || in == 0 {
						t.Errorf("%d TCP super-frames to the LAN and %d from it", out, in)
					}
				}
				fromLAN := total(b.in, super)
				testenv.Exchange(t, b.ns, "10.8.0.3", a.ns, 16<<20)
				testenv.Exchange(t, a.ns, "fd08::2", b.ns, 16<<20)
				if total(b.in, super) == fromLAN {
					t.Error("between hosts, no super-frame passed")
				}
				if a.offloads&vnet.USO != 0 {
					if got := testenv.UDPSegments(t, b.ns, "10.8.0.3", a.ns, 5); got != 200000 {
						t.Errorf("%d bytes of UDP between hosts", got)
					}
				}
				if got := testenv.UDPSegments(t, s.station, "10.8.0.1", a.ns, 5); got != 200000 {
					t.Errorf("%d bytes of UDP to the LAN", got)
				}
				for _, ns := range []string{a.ns, b.ns, s.station, s.unit} {
					if n := testenv.CsumErrors(t, ns); n != 0 {
						t.Errorf("%d packets with a wrong checksum in %s", n, ns)
					}
				}
				for _, h := range []*host{a, b} {
					t.Log("to the LAN:", h.out, "from the LAN:", h.in)
					if n := total(h.out, refused) + total(h.in, refused); n != 0 {
						t.Errorf("%d frames refused", n)
					}
					if st := h.port.Stats(); st.TooLong != 0 || st.Invalid != 0 {
						t.Errorf("%+v", st)
					}
				}
				if a.port.Name() != nic && slices.Contains(before, a.port.Name()) {
					t.Errorf("the port's device %s was there before", a.port.Name())
				}
			})
		}
	}
}

// probe returns a frame of an experimental EtherType.
func probe(dst, src net.HardwareAddr, n int, mark byte) []byte {
	f := make([]byte, vnet.HdrLen+n)
	copy(f[vnet.HdrLen:], dst)
	copy(f[vnet.HdrLen+6:], src)
	copy(f[vnet.HdrLen+12:], []byte{0x88, 0xb5, mark})
	return f
}

var (
	broadcast = net.HardwareAddr{255, 255, 255, 255, 255, 255}
	group     = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 0x42}
	macA      = net.HardwareAddr{2, 0, 0, 0, 1, 1}
	macB      = net.HardwareAddr{2, 0, 0, 0, 1, 2}
	macC      = net.HardwareAddr{2, 0, 0, 0, 1, 3}
)

// marks reads probes up to the one with mark last, and returns their marks.
func marks(t *testing.T, p lan.Interface, last byte) string {
	t.Helper()
	var got []byte
	slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
	testenv.Eventually(t, func() bool {
		for {
			f, err := testenv.ReadFrame(p.Queues()[0], slot)
			if errors.Is(err, unix.EAGAIN) {
				return false
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(f[vnet.HdrLen+12:vnet.HdrLen+14], []byte{0x88, 0xb5}) {
				continue
			}
			m := f[vnet.HdrLen+14]
			got = append(got, m)
			if m == last {
				return true
			}
		}
	}, "a probe with mark %c", last)
	return string(got)
}

// TestNetnsReceive checks which frames each port receives.
func TestNetnsReceive(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			testenv.DisableIPv6(t, s.station)
			spec := s.spec(t, kind)
			a := s.open(t, spec, lan.Config{MAC: macA, Offloads: vnet.AllOffloads})
			b := s.open(t, spec, lan.Config{MAC: macB, Offloads: vnet.AllOffloads})
			write := func(p lan.Interface, f []byte) {
				if err := testenv.WriteFrame(p.Queues()[0], f); err != nil {
					t.Fatal(err)
				}
			}
			lanSend := func(f []byte) { testenv.SendRaw(t, s.station, "eth0", f) }

			// A bridge has to learn the places of the hosts first.
			write(a, probe(broadcast, macA, 60, 'a'))
			write(b, probe(broadcast, macB, 60, 'b'))
			if got := marks(t, a, 'b'); got != "b" {
				t.Errorf("host A received %q of two broadcasts, one of them its own", got)
			}
			if got := marks(t, b, 'a'); got != "a" {
				t.Errorf("host B received %q", got)
			}

			lanSend(probe(macA, macC, 60, '1'))
			lanSend(probe(macB, macC, 60, '2'))
			lanSend(probe(group, macC, 60, '3'))
			lanSend(probe(macC, macC, 60, '4'))
			write(b, probe(macA, macB, 60, '5'))
			lanSend(probe(broadcast, macC, 60, '9'))
			if got := marks(t, a, '9'); got != "1359" {
				t.Errorf("host A received %q", got)
			}
			if got := marks(t, b, '9'); got != "239" {
				t.Errorf("host B received %q", got)
			}

			// Frames to the new address are received, frames to the old one are not.
			if err := a.SetMAC(macC); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a.MAC(), macC) {
				t.Errorf("MAC %v", a.MAC())
			}
			if kind != "tap" {
				lanSend(probe(macA, macB, 60, '1'))
				lanSend(probe(macC, macB, 60, '2'))
				lanSend(probe(broadcast, net.HardwareAddr{2, 9, 9, 9, 9, 9}, 60, '9'))
				if got := marks(t, a, '9'); got != "29" {
					t.Errorf("with a new address, host A received %q", got)
				}
			}
			if err := a.SetMAC(broadcast); err == nil {
				t.Error("a group address was taken")
			}

		})
	}
}

// TestNetnsQueuesShare sends frames of many flows to a port with several queues. Each frame has to
// arrive once, and all frames of a flow on the same queue.
func TestNetnsQueuesShare(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			testenv.DisableIPv6(t, s.station)
			// Test two ports, because the first group of sockets in the kernel is special.
			for _, mac := range []net.HardwareAddr{macA, macB} {
				p := s.open(t, s.spec(t, kind), lan.Config{MAC: mac, Queues: 3, Offloads: vnet.AllOffloads})
				const flows, rounds = 64, 2
				var frames [][]byte
				for i := range flows * rounds {
					f := tagged(mac, macC, 1000)
					f[vnet.HdrLen+18+21]++                 // source port, low byte
					f[vnet.HdrLen+18+20] = byte(i % flows) // source port, high byte
					f[vnet.HdrLen+18+40] = byte(i % flows) // payload
					frames = append(frames, f)
				}
				testenv.SendRaw(t, s.station, "eth0", frames...)
				where := make(map[byte][]int)
				total := 0
				slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
				drain := func() {
					for i, q := range p.Queues() {
						for {
							f, err := testenv.ReadFrame(q, slot)
							if errors.Is(err, unix.EAGAIN) {
								break
							}
							if err != nil {
								t.Fatal(err)
							}
							if !bytes.Equal(f[vnet.HdrLen:vnet.HdrLen+12], append(slices.Clone(mac), macC...)) {
								continue
							}
							flow := f[vnet.HdrLen+18+40]
							where[flow] = append(where[flow], i)
							total++
						}
					}
				}
				testenv.Eventually(t, func() bool { drain(); return total >= flows*rounds }, "%d frames", flows*rounds)
				drain()
				used := make(map[int]bool)
				for flow, queues := range where {
					if len(queues) != rounds || queues[0] != queues[1] {
						t.Errorf("the frames of flow %d arrived on queues %v", flow, queues)
					}
					used[queues[0]] = true
				}
				if len(used) < 2 {
					t.Errorf("only queues %v were used", used)
				}
			}
		})
	}
}

// TestNetnsVLAN sends tagged super-frames in both directions, and expects them unchanged.
func TestNetnsVLAN(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			testenv.DisableIPv6(t, s.station)
			p := s.open(t, s.spec(t, kind), lan.Config{MAC: macA, Offloads: vnet.AllOffloads})
			q := p.Queues()[0]
			l := testenv.ListenRaw(t, s.station, "eth0")

			// To the LAN.
			if err := testenv.WriteFrame(q, tagged(macC, macA, 8000)); err != nil {
				t.Fatal(err)
			}
			f, tci := l.Next(func(f []byte) bool { return bytes.Equal(f[vnet.HdrLen+6:vnet.HdrLen+12], macA) })
			if tci != 0x6123 {
				t.Errorf("to the LAN: tag %#x", tci)
			}
			var h vnet.Header
			h.Decode(f)
			if h.GSOType != vnet.GSOTCPv4 || h.GSOSize != 1400 || h.CsumStart != 34 || len(f) != vnet.HdrLen+14+40+8000 {
				t.Errorf("to the LAN: %+v, %d bytes", h, len(f))
			}

			// From the LAN.
			want := tagged(macA, macC, 8000)
			testenv.SendRaw(t, s.station, "eth0", want)
			slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
			testenv.Eventually(t, func() bool {
				var err error
				f, err = testenv.ReadFrame(q, slot)
				if err != nil && !errors.Is(err, unix.EAGAIN) {
					t.Fatal(err)
				}
				return err == nil && bytes.Equal(f[vnet.HdrLen:vnet.HdrLen+6], macA)
			}, "a frame from the LAN")
			h.Decode(f)
			if h.GSOType != vnet.GSOTCPv4 || h.GSOSize != 1400 || h.CsumStart != 38 {
				t.Errorf("from the LAN: %+v", h)
			}
			if !bytes.Equal(f[vnet.HdrLen:], want[vnet.HdrLen:]) {
				t.Errorf("from the LAN: %d bytes, % x, want %d, % x", len(f), f[:60], len(want), want[:60])
			}
			if err := vnet.Check(f, 1500); err != nil {
				t.Errorf("from the LAN: %v", err)
			}
		})
	}
}

// tagged returns a TCP super-frame with a VLAN tag.
func tagged(dst, src net.HardwareAddr, payload int) []byte {
	f := make([]byte, vnet.HdrLen, vnet.HdrLen+18+40+payload)
	(&vnet.Header{Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, HdrLen: 58, GSOSize: 1400, CsumStart: 38,
		CsumOffset: 16}).Encode(f)
	f = append(append(f, dst...), src...)
	f = append(f, 0x81, 0, 0x61, 0x23, 8, 0)
	n := 40 + payload
	f = append(f, 0x45, 0, byte(n>>8), byte(n), 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	f = append(f, 0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0)
	for i := range payload {
		f = append(f, byte(i))
	}
	return f
}

func TestNetnsOpenErrors(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NoLeaks(t)
	s := newTestbed(t)
	before := testenv.Links(t, s.unit)
	for _, kind := range strings.Fields(kinds) {
		_, err := lan.Open(kind+":eth7", lan.Config{NetNS: s.unit})
		if !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "only: "+nic) {
			t.Errorf("%s: missing card: %v", kind, err)
		}
		if _, err := lan.Open(kind+":"+nic, lan.Config{NetNS: s.unit, MAC: broadcast}); err == nil {
			t.Errorf("%s: a group address was taken", kind)
		}
		if _, err := lan.Open(kind+":"+nic, lan.Config{NetNS: s.unit, Queues: 300}); err == nil {
			t.Errorf("%s: 300 queues", kind)
		}
		if _, err := lan.Open(kind+":"+nic, lan.Config{NetNS: "sntest-none"}); err == nil {
			t.Errorf("%s: opened in a namespace that does not exist", kind)
		}
	}
	if _, err := lan.Open("tap:"+nic, lan.Config{NetNS: s.unit}); err == nil ||
		!strings.Contains(err.Error(), "not a bridge") {
		t.Errorf("TAP in something that is not a bridge: %v", err)
	}
	if _, err := lan.Open("packet:"+nic, lan.Config{NetNS: s.unit, Offloads: vnet.CSUM}); !errors.Is(err,
		lan.ErrUnsupported) {
		t.Errorf("packet sockets without TSO: %v", err)
	}
	own := testenv.Link(t, s.unit, nic).Attrs().HardwareAddr
	for _, kind := range []string{"macvtap", "packet"} {
		if _, err := lan.Open(kind+":"+nic, lan.Config{NetNS: s.unit, MAC: own, Offloads: vnet.AllOffloads}); !errors.Is(err,
			lan.ErrInUse) {
			t.Errorf("%s: the card's own address: %v", kind, err)
		}
	}
	other := s.open(t, "packet:"+nic, lan.Config{MAC: macC, Offloads: vnet.AllOffloads})
	if err := other.SetMAC(own); !errors.Is(err, lan.ErrInUse) {
		t.Errorf("the card's own address, later: %v", err)
	}
	a := s.open(t, nic, lan.Config{MAC: macA})
	if _, err := lan.Open(nic, lan.Config{NetNS: s.unit, MAC: macA}); !errors.Is(err, lan.ErrInUse) {
		t.Errorf("same address, same name: %v", err)
	}
	if _, err := lan.Open(nic, lan.Config{NetNS: s.unit, MAC: macA, Name: "other"}); !errors.Is(err, lan.ErrInUse) {
		t.Errorf("same address, other name: %v", err)
	}
	if testenv.Link(t, s.unit, a.Name()) == nil || testenv.Link(t, s.unit, "other") != nil {
		t.Errorf("after failures there are %v", testenv.Links(t, s.unit))
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if after := testenv.Links(t, s.unit); !slices.Equal(before, after) {
		t.Errorf("links before %v, after %v", before, after)
	}
}

func TestNetnsClose(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := newTestbed(t)
			spec := s.spec(t, kind)
			before := testenv.Links(t, s.unit)
			p, err := lan.Open(spec, lan.Config{NetNS: s.unit, Queues: 3, Offloads: vnet.AllOffloads})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Queues()) != 3 {
				t.Errorf("%d queues", len(p.Queues()))
			}
			q := p.Queues()[2]
			for range 2 {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
			if after := testenv.Links(t, s.unit); !slices.Equal(before, after) {
				t.Errorf("links before %v, after %v", before, after)
			}
			if _, err := testenv.ReadFrame(q, make([]byte, 70000)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("ReadFrame after Close: %v", err)
			}
			if err := testenv.WriteFrame(q, probe(broadcast, macA, 60, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("WriteFrame after Close: %v", err)
			}
			if _, err := p.State(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("State after Close: %v", err)
			}
			if err := errors.Join(p.SetMAC(macB)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("SetMAC after Close: %v", err)
			}
			if _, err := p.SetOffloads(vnet.AllOffloads); !errors.Is(err, net.ErrClosed) {
				t.Errorf("SetOffloads after Close: %v", err)
			}
			_ = p.Stats()
		})
	}
}

func TestNetnsCleanStale(t *testing.T) {
	testenv.NeedTUN(t)
	s := newTestbed(t)
	p := s.open(t, nic, lan.Config{MAC: macA})
	testenv.With(t, s.unit, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = "mine", testenv.Link(t, s.unit, nic).Attrs().Index
		return h.LinkAdd(&netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}})
	})
	if got, err := lan.CleanStale("eth", s.unit); err != nil || len(got) != 0 {
		t.Errorf("another card: %v, %v", got, err)
	}
	if got, err := lan.CleanStale(nic, s.unit); err != nil || !slices.Equal(got, []string{p.Name()}) {
		t.Errorf("removed %v, %v", got, err)
	}
	if testenv.Link(t, s.unit, p.Name()) != nil || testenv.Link(t, s.unit, "mine") == nil {
		t.Errorf("there are %v", testenv.Links(t, s.unit))
	}
}

func TestNetnsPortAllocs(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			testenv.DisableIPv6(t, s.station)
			p := s.open(t, s.spec(t, kind), lan.Config{MAC: macA, Offloads: vnet.AllOffloads})
			q := p.Queues()[0]
			in := []vnet.ReadOp{{Slot: make([]byte, vnet.Headroom+vnet.MaxFrame+1)}}
			const runs = 50
			testenv.SendRaw(t, s.station, "eth0", slices.Repeat([][]byte{tagged(macA, macC, 2000)}, runs+1)...)
			out, bad := tagged(macC, macA, 4000), probe(broadcast, macA, 60, 1)
			bad[1] = 77
			outs := [][]vnet.WriteOp{{{Head: out}}, {{Head: bad}}, {{Head: out[:64], Rest: out[64:]}}}
			read := 0
			if err := p.SetPromisc(true); err != nil {
				t.Fatal(err)
			}
			if n := testing.AllocsPerRun(runs, func() {
				if q.ReadFrames(in); in[0].Err == nil {
					read++
				}
				for _, op := range outs {
					q.WriteFrames(op)
				}
			}); n != 0 {
				t.Errorf("%v allocations for a frame", n)
			}
			if read != runs+1 {
				t.Errorf("%d frames read of %d", read, runs+1)
			}
			if n := testing.AllocsPerRun(runs, func() { q.ReadFrames(in) }); n != 0 {
				t.Errorf("%v allocations without a frame", n)
			}
		})
	}
}

// TestNetnsQuiet makes ports on a machine with IPv6, also as a router. It expects the machine to
// have no address on the port's netdevice, and to report no groups there.
func TestNetnsQuiet(t *testing.T) {
	testenv.NeedTUN(t)
	for _, forwarding := range []string{"0", "1"} {
		s := newTestbed(t)
		testenv.Run(t, s.unit, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=0",
			"net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.all.forwarding="+forwarding)
		p := s.open(t, s.spec(t, "macvtap"), lan.Config{MAC: macA, Offloads: vnet.AllOffloads})
		if got := testenv.Run(t, s.unit, "ip", "-6", "address", "show", "dev", p.Name()); got != "" {
			t.Errorf("forwarding %s: %s", forwarding, got)
		}
		off := "/proc/sys/net/ipv6/conf/" + p.Name() + "/disable_ipv6"
		if got := testenv.Run(t, s.unit, "cat", off); forwarding == "1" && got != "1\n" {
			t.Errorf("a router reports its groups: disable_ipv6 is %s", got)
		}
	}
}

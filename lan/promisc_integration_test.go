package lan_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/vnet"
)

var (
	stranger = net.HardwareAddr{2, 9, 9, 9, 9, 9}
	machine  = net.HardwareAddr{2, 7, 7, 7, 7, 7}
)

// ports opens two ports on one card, and returns them with a function that sends a frame from the
// LAN.
func (s testbed) ports(t *testing.T, kind string) (a, b lan.Interface, lanSend func(f []byte)) {
	t.Helper()
	testenv.DisableIPv6(t, s.station)
	spec := s.spec(t, kind)
	a = s.open(t, spec, lan.Config{MAC: macA, Offloads: vnet.AllOffloads})
	b = s.open(t, spec, lan.Config{MAC: macB, Offloads: vnet.AllOffloads})
	return a, b, func(f []byte) { testenv.SendRaw(t, s.station, "eth0", f) }
}

func write(t *testing.T, p lan.Interface, f []byte) {
	t.Helper()
	if err := testenv.WriteFrame(p.Queues()[0], f); err != nil {
		t.Fatal(err)
	}
}

// rest reads all probes that have arrived, and returns their marks.
func rest(t *testing.T, p lan.Interface) string {
	t.Helper()
	var got []byte
	slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
	for {
		f, err := testenv.ReadFrame(p.Queues()[0], slot)
		if errors.Is(err, unix.EAGAIN) {
			return string(got)
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(f[vnet.HdrLen+12:vnet.HdrLen+14], []byte{0x88, 0xb5}) {
			got = append(got, f[vnet.HdrLen+14])
		}
	}
}

// collect reads probes from a port up to the one with mark last, which is sent to all ports after
// the others. It returns the marks in alphabetical order, because frames that take different ways
// may overtake each other.
func collect(t *testing.T, p lan.Interface, last byte) string {
	t.Helper()
	got := []byte(marks(t, p, last) + rest(t, p))
	slices.Sort(got)
	return string(got)
}

// expect sends a last broadcast from the LAN, and compares the marks of the probes that the two
// ports have received with wantA and wantB.
func expect(
	t *testing.T, what string, lanSend func([]byte), a lan.Interface, wantA string, b lan.Interface, wantB string,
) {
	t.Helper()
	lanSend(probe(broadcast, stranger, 60, '9'))
	if got := collect(t, a, '9'); got != wantA+"9" {
		t.Errorf("%s: received %q, want %q", what, got, wantA+"9")
	}
	if got := collect(t, b, '9'); got != wantB+"9" {
		t.Errorf("%s: the other host received %q, want %q", what, got, wantB+"9")
	}
}

// awaitReadable waits until poll(2) reports a frame of the port.
func awaitReadable(t *testing.T, p lan.Interface) {
	t.Helper()
	if !testenv.Readable(t, p.Queues()[0].FD(), testenv.Patience) {
		t.Fatal("no frame came")
	}
}

// TestNetnsPromisc turns promiscuous mode of a port on and off, and checks which frames the port
// receives.
func TestNetnsPromisc(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := newTestbed(t)
			a, b, lanSend := s.ports(t, kind)
			for range 2 { // on and off more than once
				if err := a.SetPromisc(true); err != nil {
					t.Fatal(err)
				}
				lanSend(probe(macC, stranger, 60, '1')) // to no host here
				awaitReadable(t, a)
				lanSend(probe(macB, stranger, 60, '2'))  // to the other host
				lanSend(probe(macA, stranger, 60, '3'))  // has to be received once
				lanSend(probe(group, stranger, 60, '4')) // has to be received once
				lanSend(probe(stranger, macA, 60, '5'))  // from the host's own address
				// Frames of a machine behind the host are sent through this port, which must not
				// receive them.
				write(t, a, probe(stranger, machine, 60, '6'))
				write(t, a, probe(broadcast, machine, 60, '7'))
				write(t, b, probe(macA, macB, 60, '8'))
				expect(t, "promiscuous", lanSend, a, "12348", b, "247")
				if err := a.SetMAC(macC); err != nil {
					t.Fatal(err)
				}
				lanSend(probe(macC, stranger, 60, '1'))
				lanSend(probe(macA, stranger, 60, '2'))
				expect(t, "promiscuous, with a new address", lanSend, a, "12", b, "")
				if err := errors.Join(a.SetMAC(macA), a.SetPromisc(false)); err != nil {
					t.Fatal(err)
				}
				lanSend(probe(macC, stranger, 60, '1'))
				lanSend(probe(macA, stranger, 60, '2'))
				expect(t, "no longer promiscuous", lanSend, a, "2", b, "")
			}
			if err := errors.Join(a.SetPromisc(true), a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
			if n := testenv.Link(t, s.unit, nic).Attrs().Promisc; n != 0 {
				t.Errorf("the card is promiscuous %d times after Close", n)
			}
		})
	}
}

// TestNetnsPromiscBridge expects a promiscuous port of a bridge to get the frames that the bridge
// floods.
func TestNetnsPromiscBridge(t *testing.T) {
	testenv.NeedTUN(t)
	s := newTestbed(t)
	a, b, lanSend := s.ports(t, "tap")
	if err := a.SetPromisc(true); err != nil {
		t.Fatal(err)
	}
	write(t, b, probe(broadcast, macB, 60, '0'))
	lanSend(probe(macC, stranger, 60, '1'))
	lanSend(probe(macB, stranger, 60, '2'))
	expect(t, "bridge", lanSend, a, "01", b, "12")
}

// TestNetnsFormerAddress opens a port with the former address of another port, and expects each
// port to receive the frames to its present address.
func TestNetnsFormerAddress(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			a, _, lanSend := s.ports(t, kind)
			if err := a.SetMAC(macC); err != nil {
				t.Fatal(err)
			}
			c := s.open(t, s.spec(t, kind), lan.Config{MAC: macA, Offloads: vnet.AllOffloads})
			if kind != "packet" && c.Name() == a.Name() {
				t.Errorf("both are %s", c.Name())
			}
			write(t, c, probe(broadcast, macA, 60, '0')) // a bridge learns the places from these two frames
			write(t, a, probe(broadcast, macC, 60, '0'))
			lanSend(probe(macA, stranger, 60, '1'))
			lanSend(probe(macC, stranger, 60, '2'))
			expect(t, "the former address", lanSend, a, "02", c, "01")
		})
	}
}

// TestNetnsUnicast gives a host further addresses, and expects the port to receive frames to them.
func TestNetnsUnicast(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			a, b, lanSend := s.ports(t, kind)
			if err := a.SetUnicast([]net.HardwareAddr{machine, group}); err == nil {
				t.Error("a group was taken for an address")
			}
			if err := a.SetUnicast(slices.Repeat([]net.HardwareAddr{machine}, lan.MaxUnicast+1)); !errors.Is(err,
				lan.ErrUnsupported) {
				t.Errorf("too many addresses: %v", err)
			}
			if err := a.SetUnicast([]net.HardwareAddr{machine, macC}); err != nil {
				t.Fatal(err)
			}
			for i, dst := range []net.HardwareAddr{machine, macC, stranger, macA, macB, group} {
				lanSend(probe(dst, stranger, 60, byte('1'+i)))
			}
			expect(t, "further addresses", lanSend, a, "1246", b, "56")
			if err := a.SetUnicast(nil); err != nil {
				t.Fatal(err)
			}
			lanSend(probe(machine, stranger, 60, '1'))
			expect(t, "without", lanSend, a, "", b, "")
		})
	}
}

// groupsOf returns the multicast groups that the kernel lists for a device.
func groupsOf(t *testing.T, ns, dev string) []string {
	t.Helper()
	var text []byte
	err := netns.Do(ns, func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/dev_mcast")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 5 && f[1] == dev {
			groups = append(groups, f[4])
		}
	}
	return groups
}

// TestNetnsGroups sets the multicast groups of a port, and expects frames to these groups
// instead of all groups.
func TestNetnsGroups(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			a, b, lanSend := s.ports(t, kind)
			second := net.HardwareAddr{1, 0, 0x5e, 1, 2, 3}
			has := func(want ...net.HardwareAddr) {
				t.Helper()
				have := groupsOf(t, s.unit, a.Name())
				for _, g := range []net.HardwareAddr{group, second} {
					if wanted := slices.ContainsFunc(want, func(w net.HardwareAddr) bool {
						return slices.Equal(w,
							g)
					}); slices.Contains(have, hex.EncodeToString(g)) != wanted {
						t.Errorf("the kernel lists %v for %s, want %v", have, a.Name(), want)
					}
				}
			}
			if err := a.SetMulticast([]net.HardwareAddr{macB}); err == nil {
				t.Error("a station was taken for a group")
			}
			if err := errors.Join(a.SetAllMulti(false), a.SetMulticast([]net.HardwareAddr{group, second})); err != nil {
				t.Fatal(err)
			}
			has(group, second)
			// The macvtap's filter is a hash of 256 buckets: a few other groups may pass.
			others := func() {
				for i := range 16 {
					lanSend(probe(net.HardwareAddr{0x33, 0x33, 1, 2, 3, byte(i)}, stranger, 60, 'x'))
				}
			}
			clean := func(p lan.Interface, what, want string) {
				t.Helper()
				lanSend(probe(broadcast, stranger, 60, '9'))
				got := collect(t, p, '9')
				if n := strings.Count(got, "x"); n > 8 {
					t.Errorf("%s: received %d of 16 frames to other groups", what, n)
				}
				if got = strings.TrimRight(got, "x"); got != want+"9" {
					t.Errorf("%s: received %q, want %q", what, got, want+"9")
				}
			}
			lanSend(probe(group, stranger, 60, '1'))
			lanSend(probe(second, stranger, 60, '2'))
			lanSend(probe(macA, stranger, 60, '3'))
			others()
			clean(a, "two groups", "123")
			if got := collect(t, b, '9'); strings.Count(got, "x") != 16 {
				t.Errorf("with all groups, the other host received %q", got)
			}

			if err := a.SetMulticast([]net.HardwareAddr{second}); err != nil {
				t.Fatal(err)
			}
			has(second)
			others()
			lanSend(probe(second, stranger, 60, '2'))
			clean(a, "one group", "2")
			if err := a.SetMulticast(nil); err != nil {
				t.Fatal(err)
			}
			has()
			if err := a.SetAllMulti(true); err != nil {
				t.Fatal(err)
			}
			lanSend(probe(group, stranger, 60, '1'))
			clean(a, "all groups", "1")

			// Promiscuous mode includes all groups, and does not change the list.
			if err := errors.Join(a.SetAllMulti(false), a.SetPromisc(true)); err != nil {
				t.Fatal(err)
			}
			lanSend(probe(group, stranger, 60, '1'))
			clean(a, "promiscuous", "1")
			if err := errors.Join(a.SetPromisc(false), a.SetMulticast([]net.HardwareAddr{second})); err != nil {
				t.Fatal(err)
			}
			has(second)
			others()
			clean(a, "no longer", "")
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			has()
		})
	}
}

// TestNetnsSetUp sets a port down and up again. It expects no frames in either direction while the
// port is down.
func TestNetnsSetUp(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			a, b, lanSend := s.ports(t, kind)
			l := testenv.ListenRaw(t, s.station, "eth0")
			next := func() byte {
				f, _ := l.Next(func(f []byte) bool {
					return len(f) > vnet.HdrLen+14 && bytes.Equal(f[vnet.HdrLen+6:vnet.HdrLen+12], macA)
				})
				return f[vnet.HdrLen+14]
			}
			for range 2 {
				if err := errors.Join(a.SetPromisc(true), a.SetUp(false)); err != nil {
					t.Fatal(err)
				}
				lanSend(probe(macA, stranger, 60, '1'))
				lanSend(probe(stranger, stranger, 60, '2'))
				_ = testenv.WriteFrame(a.Queues()[0], probe(broadcast, macA, 60, '3')) // lost, with an error or without
				lanSend(probe(broadcast, stranger, 60, '8'))
				marks(t, b, '8') // port a would have received the frames before this one
				if got := rest(t, a); got != "" {
					t.Errorf("down, %q came", got)
				}
				if err := errors.Join(a.SetPromisc(false), a.SetUp(true)); err != nil {
					t.Fatal(err)
				}
				if kind == "tap" {
					testenv.Eventually(t, func() bool {
						return testenv.Link(t, s.unit, a.Name()).Attrs().OperState == netlink.OperUp
					}, "%s being up", a.Name())
				}
				write(t, a, probe(broadcast, macA, 60, '4'))
				if got := next(); got != '4' {
					t.Errorf("the LAN received %c", got)
				}
				lanSend(probe(macA, stranger, 60, '5'))
				lanSend(probe(broadcast, stranger, 60, '9'))
				if got := collect(t, a, '9'); got != "59" {
					t.Errorf("up again: received %q", got)
				}
				collect(t, b, '9')
			}
		})
	}
}

// TestNetnsParts writes frames in two parts, at different places in memory.
func TestNetnsParts(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			a, _, _ := s.ports(t, kind)
			l := testenv.ListenRaw(t, s.station, "eth0")
			for i, n := range []int{vnet.MinFrame, 64, 192, 4000} {
				f := tagged(macC, macA, 5000)
				f[vnet.HdrLen+60] = byte(i)
				if err := testenv.WriteFrame(a.Queues()[0], slices.Clone(f[:n]), f[n:]...); err != nil {
					t.Fatal(err)
				}
				got, _ := l.Next(func(f []byte) bool { return bytes.Equal(f[vnet.HdrLen+6:vnet.HdrLen+12], macA) })
				// The kernel passes the VLAN tag separately from the frame.
				if !bytes.Equal(got[vnet.HdrLen+12:], f[vnet.HdrLen+16:]) {
					t.Errorf("cut at %d, %d bytes arrived, differing from what was sent", n, len(got))
				}
			}
			if err := testenv.WriteFrame(a.Queues()[0], probe(broadcast, macA, 60, '1')); err != nil {
				t.Fatal(err)
			}
			if got, _ := l.Next(func(f []byte) bool {
				return bytes.Equal(f[vnet.HdrLen+6:vnet.HdrLen+12],
					macA)
			}); got[vnet.HdrLen+14] != '1' {
				t.Errorf("%d bytes arrived", len(got))
			}
			err := testenv.WriteFrame(a.Queues()[0], make([]byte, vnet.MinFrame-1), make([]byte, 60)...)
			if !errors.Is(err, unix.EINVAL) {
				t.Errorf("a head that is too short: %v", err)
			}
		})
	}
}

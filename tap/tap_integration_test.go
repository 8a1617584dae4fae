package tap_test

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

var testMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}

// openers has the function to open a device of each of the two kinds.
var openers = map[string]func(tap.Config) (*tap.Device, error){"vnet": tap.Open, "plain": openPlain}

func openPlain(cfg tap.Config) (*tap.Device, error) {
	cfg.Plain = true
	return tap.Open(cfg)
}

// TestNetnsSpeed expects devices to show the speed that was set, also after a device was renamed or
// moved to another namespace.
func TestNetnsSpeed(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ip", "ethtool")
	for kind, open := range openers {
		t.Run(kind, func(t *testing.T) {
			ns, name := testenv.NetNS(t), "sn0"
			d, err := open(tap.Config{Name: name, NetNS: ns})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			shows := func(speed, duplex string) {
				t.Helper()
				out := testenv.Run(t, ns, "ethtool", name)
				for _, want := range []string{"Speed: " + speed, "Duplex: " + duplex} {
					if !strings.Contains(out, want) {
						t.Errorf("want %q:\n%s", want, out)
					}
				}
			}
			set := func(mbit int) {
				t.Helper()
				if err := d.SetSpeed(mbit); err != nil {
					t.Fatal(err)
				}
			}
			shows("Unknown!", "Unknown!")
			set(10000)
			shows("10000Mb/s", "Full")
			set(400000)
			shows("400000Mb/s", "Full")
			elsewhere := testenv.NetNS(t)
			testenv.Run(t, ns, "ip", "link", "set", name, "name", "lan7")
			testenv.Run(t, ns, "ip", "link", "set", "lan7", "netns", elsewhere)
			ns, name = elsewhere, "lan7"
			set(2500)
			shows("2500Mb/s", "Full")
			set(1<<32 - 1)
			shows("Unknown!", "Unknown!")
			set(1)
			set(0)
			shows("Unknown!", "Unknown!")
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if err := d.SetSpeed(1); !errors.Is(err, net.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		})
	}
}

func TestNetnsDeviceAttributes(t *testing.T) {
	testenv.NeedTUN(t)
	for kind, open := range openers {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			ns := testenv.NetNS(t)
			d, err := open(tap.Config{Name: "sn0", NetNS: ns, Queues: 3, Offloads: vnet.AllOffloads, MAC: testMAC, MTU: 2000})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if len(d.Queues()) != 3 || d.Name() != "sn0" {
				t.Errorf("%d queues, name %q", len(d.Queues()), d.Name())
			}
			a := testenv.Link(t, ns, "sn0").Attrs()
			if a.TxQLen != tap.DefaultTxQueueLen || a.MTU != 2000 || !bytes.Equal(a.HardwareAddr, testMAC) ||
				a.Index != d.Index() {
				t.Errorf("attributes %+v", a)
			}
			if a.Flags&net.FlagUp != 0 {
				t.Error("the device starts up")
			}
			// 3 is NET_ADDR_SET. udev changes the address of devices with NET_ADDR_RANDOM, 1.
			if got := strings.TrimSpace(testenv.Run(t, ns, "cat", "/sys/class/net/sn0/addr_assign_type")); got != "3" {
				t.Errorf("addr_assign_type %s: the address was not set", got)
			}
			if kind == "vnet" && a.GSOMaxSize != vnet.GSOMaxSize {
				t.Errorf("gso_max_size %d", a.GSOMaxSize)
			}
			if err := d.Up(); err != nil {
				t.Fatal(err)
			}
			running := func() bool { return testenv.Link(t, ns, "sn0").Attrs().RawFlags&unix.IFF_LOWER_UP != 0 }
			if running() {
				t.Error("the device starts with carrier")
			}
			for _, on := range []bool{true, false, true} {
				if err := d.SetCarrier(on); err != nil {
					t.Fatal(err)
				}
				if running() != on {
					t.Errorf("carrier is %t after SetCarrier(%t)", running(), on)
				}
			}
			mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
			if err := errors.Join(d.SetMAC(mac), d.SetMTU(9000)); err != nil {
				t.Fatal(err)
			}
			gotMAC, err1 := d.MAC()
			got, err2 := d.State()
			if err := errors.Join(err1, err2); err != nil || !bytes.Equal(gotMAC, mac) || got.MTU != 9000 {
				t.Errorf("MAC %v, MTU %d, %v", gotMAC, got.MTU, err)
			}
			if err := d.SetMAC(net.HardwareAddr{3, 0, 0, 0, 0, 1}); err == nil {
				t.Error("a group address was taken")
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
			if testenv.Link(t, ns, "sn0") != nil {
				t.Error("Close left the netdevice")
			}
			if err := d.SetCarrier(true); !errors.Is(err, net.ErrClosed) {
				t.Errorf("SetCarrier after Close: %v", err)
			}
			if _, err := d.MAC(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("MAC after Close: %v", err)
			}
		})
	}
}

func TestNetnsOffloads(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ethtool")
	ns := testenv.NetNS(t)
	d, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, Offloads: vnet.CSUM | vnet.TSO4})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Offloads() != vnet.CSUM|vnet.TSO4 {
		t.Errorf("offloads %v", d.Offloads())
	}
	feature := func(name string) bool {
		for l := range strings.Lines(testenv.Run(t, ns, "ethtool", "-k", "sn0")) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(l), name+": "); ok {
				return strings.HasPrefix(v, "on")
			}
		}
		t.Fatalf("ethtool shows no %s", name)
		return false
	}
	if !feature("tx-tcp-segmentation") || feature("tx-tcp6-segmentation") {
		t.Error("segmentation is not on for IPv4 alone")
	}
	got, err := d.SetOffloads(vnet.AllOffloads)
	if err != nil || got&^vnet.USO != vnet.AllOffloads&^vnet.USO {
		t.Errorf("SetOffloads: %v, %v", got, err)
	}
	if !feature("tx-tcp6-segmentation") {
		t.Error("IPv6 segmentation is not on")
	}
	if got, err = d.SetOffloads(vnet.TSO4); err != nil || got != 0 {
		t.Errorf("SetOffloads without checksum: %v, %v", got, err)
	}
	if feature("tx-tcp-segmentation") || feature("tx-checksumming") {
		t.Error("offloads are on after they were taken away")
	}
}

func TestNetnsOpenErrors(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NoLeaks(t)
	ns := testenv.NetNS(t)
	testenv.Bridge(t, ns, "br0")
	first, err := tap.Open(tap.Config{Name: "held", NetNS: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	testenv.NeedTools(t, "ip")
	testenv.Run(t, ns, "ip", "tuntap", "add", "dev", "stale", "mode", "tap")
	for kind, open := range openers {
		for name, words := range map[string]string{
			"held": "another process", "stale": "ip link delete stale", "br0": "type bridge",
		} {
			d, err := open(tap.Config{Name: name, NetNS: ns})
			if err == nil {
				d.Close()
			}
			if !errors.Is(err, tap.ErrExists) || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: opening %s: %v", kind, name, err)
			}
			if testenv.Link(t, ns, name) == nil {
				t.Errorf("%s: the failed attempt removed %s", kind, name)
			}
		}
		for _, name := range []string{"sixteen-letters-", "a/b", "..", "a b", "%s", "a%d%d"} {
			if d, err := open(tap.Config{Name: name, NetNS: ns}); err == nil {
				t.Errorf("%s: name %q was taken", kind, name)
				d.Close()
			}
		}
		if _, err := open(tap.Config{NetNS: "sntest-none"}); err == nil {
			t.Errorf("%s: opened in a namespace that does not exist", kind)
		}
		if _, err := open(tap.Config{NetNS: ns, Queues: 257}); err == nil {
			t.Errorf("%s: 257 queues", kind)
		}
		if _, err := open(tap.Config{Name: "bad", NetNS: ns, MTU: 17}); err == nil || testenv.Link(t, ns, "bad") != nil {
			t.Errorf("%s: MTU 17: %v", kind, err)
		}
		d, err := open(tap.Config{NetNS: ns, Queues: 2})
		if err != nil {
			t.Fatal(err)
		}
		if d.Name() != "tap0" {
			t.Errorf("%s: the kernel's name is %q", kind, d.Name())
		}
		d.Close()
	}
}

// TestNetnsDeletedDevice removes the netdevice while its queues are in use.
func TestNetnsDeletedDevice(t *testing.T) {
	testenv.NeedTUN(t)
	ns := testenv.NetNS(t)
	d, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns})
	if err != nil {
		t.Fatal(err)
	}
	testenv.With(t, ns, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, ns, "sn0")) })
	q := d.Queues()[0]
	if _, err := q.ReadFrame(make([]byte, 70000)); !errors.Is(err, unix.EBADFD) {
		t.Errorf("ReadFrame: %v", err)
	}
	if err := q.WriteParts(make([]byte, 100), nil); !errors.Is(err, unix.EBADFD) {
		t.Errorf("WriteFrame: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

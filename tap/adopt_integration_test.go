package tap_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// adopters has, for each kind of device in openers, the function to adopt such a device.
var adopters = map[string]func(tap.Config, []int) (*tap.Device, error){"vnet": tap.Adopt, "plain": adoptPlain}

func adoptPlain(cfg tap.Config, fds []int) (*tap.Device, error) {
	cfg.Plain = true
	return tap.Adopt(cfg, fds)
}

// copies returns duplicates of the descriptors of d's queues, as a service manager has them.
func copies(t *testing.T, d *tap.Device) []int {
	t.Helper()
	var fds []int
	for _, q := range d.Queues() {
		fd, err := unix.FcntlInt(uintptr(q.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

// frameTo returns a frame to mac with this content, with a virtio header.
func frameTo(mac net.HardwareAddr, content byte) []byte {
	f := make([]byte, vnet.HdrLen+60)
	copy(f[vnet.HdrLen:], mac)
	copy(f[vnet.HdrLen+6:], testMAC)
	f[vnet.HdrLen+12], f[vnet.HdrLen+13] = 0x88, 0xb5 // EtherType for experiments
	f[vnet.HdrLen+14] = content
	return f
}

// TestNetnsAdopt adopts a device that is in use, as another process would. It expects all settings
// of the device to stay, and a frame that waits in a queue too.
func TestNetnsAdopt(t *testing.T) {
	testenv.NeedTUN(t)
	for kind, open := range openers {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			ns := testenv.NetNS(t)
			testenv.DisableIPv6(t, ns)
			cfg := tap.Config{Name: "sn0", NetNS: ns, Queues: 3, Offloads: vnet.AllOffloads, TxQueueLen: 200}
			d, err := open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if d.Taken() || d.Label().Adopted != 0 {
				t.Errorf("a new device was taken: %+v", d.Label())
			}
			memory := tap.Memory{MAC: testMAC, MTU: 1400, WantMTU: 1400}
			if err := errors.Join(d.SetMAC(testMAC), d.SetMTU(1400), d.SetMemory(memory), d.SetActive(2), d.Up(),
				d.SetCarrier(true)); err != nil {
				t.Fatal(err)
			}
			testenv.Address(t, ns, "sn0", "10.9.0.1/24")
			since := d.Label().Since
			var before *netlink.LinkAttrs
			peer := net.HardwareAddr{2, 0, 0, 0, 0, 7}
			testenv.With(t, ns, func(h *netlink.Handle) error {
				link, err := h.LinkByName("sn0")
				if err != nil {
					return err
				}
				if err := h.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.IPv4(10, 9, 0, 2), HardwareAddr: peer,
					State: netlink.NUD_REACHABLE}); err != nil {
					return err
				}
				if err := h.LinkSetTxQLen(link, 100); err != nil { // as an administrator could
					return err
				}
				before = link.Attrs()
				if before.Alias != "" {
					t.Errorf("LLDP daemons announce %q", before.Alias)
				}
				return h.LinkSetAlias(link, "uplink") // as an administrator could
			})
			fds := copies(t, d)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			testenv.SendRaw(t, ns, "sn0", frameTo(peer, 77))

			d, err = adopters[kind](cfg, fds)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			on, err := d.Carrier()
			if err != nil || !on || !d.Taken() || d.Name() != "sn0" || d.Index() != before.Index {
				t.Errorf("carrier %t (%v), taken %t, %s, index %d", on, err, d.Taken(), d.Name(), d.Index())
			}
			if l := d.Label(); l.Adopted != 1 || !l.Since.Equal(since) || l.Memory.WantMTU != 1400 ||
				!bytes.Equal(l.Memory.MAC, testMAC) {
				t.Errorf("label %+v", l)
			}
			a := testenv.Link(t, ns, "sn0").Attrs()
			if a.Alias != "uplink" || len(a.AltNames) != 1 {
				t.Errorf("alias %q, alternative names %q", a.Alias, a.AltNames)
			}
			if a.MTU != 1400 || !bytes.Equal(a.HardwareAddr, testMAC) || a.TxQLen != 100 || a.Flags&net.FlagUp == 0 ||
				a.GSOMaxSize != before.GSOMaxSize {
				t.Errorf("attributes %+v", a)
			}
			testenv.With(t, ns, func(h *netlink.Handle) error {
				neighbours, err := h.NeighList(a.Index, netlink.FAMILY_V4)
				if err != nil {
					return err
				}
				if len(neighbours) != 1 || !bytes.Equal(neighbours[0].HardwareAddr, peer) {
					t.Errorf("neighbours %+v", neighbours)
				}
				addrs, err := h.AddrList(testenv.Link(t, ns, "sn0"), netlink.FAMILY_V4)
				if err == nil && len(addrs) != 1 {
					t.Errorf("addresses %v", addrs)
				}
				return err
			})
			if !received(d, 77) {
				t.Error("the frame that waited is lost")
			}
			// A queue that was not in use can be used again.
			if err := d.SetActive(3); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if testenv.Link(t, ns, "sn0") != nil {
				t.Error("the device outlives its last descriptor")
			}
		})
	}
}

// received reports whether a frame with this content waits in one of the queues.
func received(d *tap.Device, content byte) bool {
	slot := make([]byte, vnet.MaxFrame+1)
	for _, q := range d.Queues() {
		for {
			f, err := q.ReadFrame(slot)
			if err != nil {
				break
			}
			if f[vnet.HdrLen+14] == content {
				return true
			}
		}
	}
	return false
}

// TestNetnsAdoptElsewhere adopts devices that were renamed and moved to another namespace, with the
// same number of queues, fewer and more.
func TestNetnsAdoptElsewhere(t *testing.T) {
	testenv.NeedTUN(t)
	for kind, open := range openers {
		for _, queues := range []int{1, 2, 4} {
			ns, there := testenv.NetNS(t), testenv.NetNS(t)
			cfg := tap.Config{Name: "sn0", NetNS: ns, Queues: 2, Offloads: vnet.AllOffloads}
			d, err := open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			fds := copies(t, d)
			testenv.With(t, ns, func(h *netlink.Handle) error {
				if err := h.LinkSetName(testenv.Link(t, ns, "sn0"), "lan0"); err != nil {
					return err
				}
				return moveTo(h, testenv.Link(t, ns, "lan0"), there)
			})
			if err := errors.Join(d.Up(), d.SetCarrier(true), d.Close()); err != nil {
				t.Fatal(err)
			}
			cfg.Queues = queues
			if d, err = adopters[kind](cfg, fds); err != nil {
				t.Fatalf("%s, %d queues: %v", kind, queues, err)
			}
			tuntap, ok := testenv.Link(t, there, "lan0").(*netlink.Tuntap)
			if !ok || tuntap.Queues != queues || len(d.Queues()) != queues || d.Name() != "sn0" {
				t.Errorf("%s: %d queues instead of %d, %s, %+v", kind, len(d.Queues()), queues, d.Name(), tuntap)
			}
			if on, err := d.Carrier(); err != nil || !on {
				t.Errorf("%s, %d queues: carrier %t, %v", kind, queues, on, err)
			}
			if err := errors.Join(d.SetMTU(1300), d.SetActive(1), d.SetActive(queues), d.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// moveTo moves a device to a namespace.
func moveTo(h *netlink.Handle, link netlink.Link, ns string) error {
	f, err := os.Open(filepath.Join("/run/netns", ns))
	if err != nil {
		return err
	}
	defer f.Close()
	return h.LinkSetNsFd(link, int(f.Fd()))
}

// TestNetnsAdoptErrors adopts descriptors that are not usable. It expects an error and all the
// descriptors to be closed.
func TestNetnsAdoptErrors(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NoLeaks(t)
	ns := testenv.NetNS(t)
	opened := func(name string, plain bool, queues int) *tap.Device {
		t.Helper()
		open := tap.Open
		if plain {
			open = openPlain
		}
		d, err := open(tap.Config{Name: name, NetNS: ns, Queues: queues})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	null := func() int {
		fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	one, two, plain := opened("one", false, 2), opened("two", false, 1), opened("plain", true, 1)
	gone := opened("gone", false, 1)
	goneFDs, both := copies(t, gone), copies(t, one)
	t.Cleanup(func() { unix.Close(both[1]) })
	testenv.With(t, ns, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, ns, "gone")) })
	for name, fds := range map[string][]int{
		"none":         nil,
		"no TAP":       {null()},
		"plain":        copies(t, plain),
		"a part":       both[:1],
		"two devices":  append(copies(t, two), copies(t, plain)...),
		"two of vnet":  append(copies(t, two), copies(t, one)...),
		"deleted":      goneFDs,
		"one, no more": append(copies(t, two), null()),
	} {
		d, err := tap.Adopt(tap.Config{Name: "sn0", Queues: max(1, len(fds))}, fds)
		if err == nil {
			d.Close()
			t.Errorf("%s: no error", name)
		}
		if name == "deleted" && !errors.Is(err, tap.ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		for _, fd := range fds {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
				t.Errorf("%s: a descriptor stays open: %v", name, err)
			}
		}
	}
	if d, err := tap.Adopt(tap.Config{Plain: true}, copies(t, two)); err == nil {
		d.Close()
		t.Error("a device with virtio_net_hdr was taken for a plain one")
	}
}

// TestNetnsPersist makes persistent devices, which stay when all descriptors are closed.
func TestNetnsPersist(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ip")
	for kind, open := range openers {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			ns := testenv.NetNS(t)
			cfg := tap.Config{Name: "sn0", NetNS: ns, Queues: 2, Offloads: vnet.AllOffloads, Persist: true}
			d, err := open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			index := d.Index()
			if err := errors.Join(d.SetMAC(testMAC), d.Up(), d.SetCarrier(true)); err != nil {
				t.Fatal(err)
			}
			testenv.Address(t, ns, "sn0", "10.9.0.1/24")
			if second, err := open(cfg); !errors.Is(err, tap.ErrExists) {
				t.Errorf("a device that is in use was taken over: %v", err)
				second.Close()
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if a := testenv.Link(t, ns, "sn0").Attrs(); a.RawFlags&unix.IFF_LOWER_UP != 0 || a.Flags&net.FlagUp == 0 {
				t.Errorf("without a process the flags are %v", a.Flags)
			}
			without := cfg
			without.Persist = false
			if d, err := open(without); !errors.Is(err, tap.ErrExists) || !strings.Contains(err.Error(), "--persist") {
				t.Errorf("without Persist: %v", err)
				d.Close()
			}
			cfg.Queues = 3
			if d, err = open(cfg); err != nil {
				t.Fatal(err)
			}
			on, err := d.Carrier()
			a := testenv.Link(t, ns, "sn0").Attrs()
			if err != nil || on || !d.Taken() || d.Label().Adopted != 1 || a.Index != index ||
				!bytes.Equal(a.HardwareAddr, testMAC) || a.Flags&net.FlagUp == 0 {
				t.Errorf("carrier %t (%v), taken %t, %+v, %+v", on, err, d.Taken(), d.Label(), a)
			}
			if err := d.SetCarrier(true); err != nil {
				t.Error(err)
			}
			testenv.With(t, ns, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, ns, "sn0")) })
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			testenv.Run(t, ns, "ip", "tuntap", "add", "dev", "sn0", "mode", "tap", "multi_queue")
			if d, err := open(cfg); !errors.Is(err, tap.ErrExists) {
				t.Errorf("somebody else's device was taken over: %v", err)
				d.Close()
			}
		})
	}
}

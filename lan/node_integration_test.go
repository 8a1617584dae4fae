package lan

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsNodeAtHome opens a macvtap in the network namespace of the process, with the
// sysfs of that namespace on /sys, as usual for an I/O unit. The other tests use another
// namespace than that of the process.
func TestNetnsNodeAtHome(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NetNS(t)
	testenv.Veth(t, ns, "eth1", ns, "eth2")
	testenv.With(t, ns, func(h *netlink.Handle) error {
		parent, err := h.LinkByName("eth1")
		if err != nil {
			return err
		}
		return h.LinkAdd(&netlink.Macvtap{Macvlan: netlink.Macvlan{
			LinkAttrs: netlink.LinkAttrs{Name: "vtap", ParentIndex: parent.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE,
		}})
	})
	index := testenv.Link(t, ns, "vtap").Attrs().Index
	var fds []int
	err := netns.OnThread(func() error {
		return netns.DoHere(ns, func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
				return err
			}
			fds, err = openNodesHere("vtap", index, 2)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	if len(fds) != 2 {
		t.Errorf("%d descriptors", len(fds))
	}
}

package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AskOnce makes the network stack of ns wait for an hour before it asks again for
// a neighbour on a device.
func AskOnce(t testing.TB, ns, device string) {
	t.Helper()
	within(t, ns, func() (err error) {
		for _, family := range []string{"ipv4", "ipv6"} {
			file := fmt.Sprintf("/proc/sys/net/%s/neigh/%s/retrans_time_ms", family, device)
			err = errors.Join(err, os.WriteFile(file, []byte("3600000"), 0o644))
		}
		return err
	})
}

// Neighbour adds a permanent neighbour, as an administrator does. The kernel does not send requests
// for such a neighbour.
func Neighbour(t testing.TB, ns, device string, addr netip.Addr, mac net.HardwareAddr) {
	t.Helper()
	withLink(t, ns, device, func(h *netlink.Handle, link netlink.Link) error {
		return h.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(),
			HardwareAddr: mac})
	})
}

// NeighbourState returns the state (netlink.NUD_REACHABLE and so on) of a neighbour, or NUD_NONE if
// the neighbour is not known.
func NeighbourState(t testing.TB, ns, device string, addr netip.Addr) int {
	t.Helper()
	state := netlink.NUD_NONE
	withLink(t, ns, device, func(h *netlink.Handle, link netlink.Link) error {
		known, err := h.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
		for _, n := range known {
			if n.IP.Equal(addr.AsSlice()) {
				state = n.State
			}
		}
		return err
	})
	return state
}

// Running reports whether the network stack of ns has noticed that a device has
// carrier, and not yet that it has lost it.
func Running(t testing.TB, ns, device string) bool {
	t.Helper()
	return Link(t, ns, device).Attrs().Flags&net.FlagRunning != 0
}

// Learned reports whether a bridge has learned that mac is behind its port, in
// network namespace ns.
func Learned(t testing.TB, ns, port string, mac net.HardwareAddr) bool {
	t.Helper()
	found := false
	withLink(t, ns, port, func(h *netlink.Handle, link netlink.Link) error {
		entries, err := h.NeighList(link.Attrs().Index, unix.AF_BRIDGE)
		for _, e := range entries {
			found = found || bytes.Equal(e.HardwareAddr, mac)
		}
		return err
	})
	return found
}

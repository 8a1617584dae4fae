package testenv

import (
	"bytes"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

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

package endpoints

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// childMAC returns the address of a macvlan device on sn0.
func childMAC(i int) protocol.MAC { return protocol.MAC{2, 0x44, 0, 0, byte(i >> 8), byte(i)} }

// macvlan adds macvlan devices to sn0 in a network namespace.
func macvlan(t *testing.T, ns string, macs ...protocol.MAC) {
	t.Helper()
	testenv.With(t, ns, func(h *netlink.Handle) error {
		parent, err := h.LinkByName("sn0")
		for i := 0; err == nil && i < len(macs); i++ {
			m := macs[i]
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.ParentIndex, attrs.HardwareAddr = "c"+strings.ReplaceAll(m.String()[6:], ":", ""),
				parent.Attrs().Index, m[:]
			if err = h.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}); err == nil {
				err = h.LinkSetUp(&netlink.Macvlan{LinkAttrs: attrs})
			}
		}
		return err
	})
}

// served returns the host's further addresses that the I/O unit grants, or nil before it has answered.
func (f *follower) served() []protocol.MAC {
	if a := f.host.Status().Filter; a != nil {
		return a.Unicast
	}
	return nil
}

// reaches sends a frame from the LAN to each address, and returns the number of those that arrive. The
// address of number 5 has to be granted.
func (f *follower) reaches(macs []protocol.MAC) int {
	f.t.Helper()
	l := testenv.ListenAsIs(f.t, f.ns, "sn0")
	got := make(map[protocol.MAC]bool)
	for i, batch := 0, 16; i < len(macs); i += batch {
		for _, m := range macs[i:min(i+batch, len(macs))] {
			f.send(marked(m, station, 'a', 0))
		}
		f.send(marked(childMAC(5), station, 'z', 0)) // through the same socket, so behind the others
		l.Next(func(b []byte) bool {
			m, ok := markOf(b)
			if ok && m == 'a' {
				got[protocol.MAC(b[vnet.HdrLen:])] = true
			}
			return ok && m == 'z'
		})
	}
	return len(got)
}

// TestNetnsManyMacvlans has more macvlan devices on the netdevice than the host may have addresses.
// All that the bound permits work, each further one is refused alone, and gets the place of one that is
// removed.
func TestNetnsManyMacvlans(t *testing.T) {
	const most, beyond = 256, 2
	f := newFollower(t, "default: {macs: any}")
	var macs []protocol.MAC
	for i := range most + beyond {
		macs = append(macs, childMAC(i))
	}
	macvlan(t, f.ns, macs[:most]...)
	f.eventually("all addresses granted", func() bool { return len(f.served()) == most })
	if n := f.reaches(macs[:most]); n != most {
		t.Errorf("%d of %d macvlan devices get frames", n, most)
	}
	if r := f.host.Status().LastRefusal; r != nil {
		t.Errorf("refused: %+v", r)
	}
	macvlan(t, f.ns, macs[most:]...)
	f.eventually("the ones beyond the bound refused", func() bool { return f.host.Status().LastRefusal != nil })
	r := f.host.Status().LastRefusal
	if r.What != "unicast addresses" || !strings.Contains(r.Reason, fmt.Sprint(most)) || len(r.Wanted) > 80 ||
		!strings.Contains(r.Reason, "max-macs") || strings.Contains(r.Wanted, macs[0].String()) {
		t.Errorf("refused: %+v", r)
	}
	if n := f.reaches(macs); n != most {
		t.Errorf("%d of %d macvlan devices get frames, with %d beyond the bound", n, most, beyond)
	}
	f.ip("link del c00000000")
	f.ip("link del c00000001")
	f.eventually("the places of those that are gone", func() bool {
		return slices.Contains(f.served(), macs[most]) && slices.Contains(f.served(), macs[most+1])
	})
	if r := f.host.Status().LastRefusal; r != nil {
		t.Errorf("still refused: %+v", r)
	}
}

// TestNetnsMacvlansPromiscuous has more macvlan devices than the host may have addresses, and the
// permission to be promiscuous: the port then receives everything, as a card does.
func TestNetnsMacvlansPromiscuous(t *testing.T) {
	f := newFollower(t, "default: {macs: any, promiscuous: yes, max-macs: 4}")
	macs := []protocol.MAC{childMAC(0), childMAC(1), childMAC(2), childMAC(3), childMAC(4), childMAC(5)}
	macvlan(t, f.ns, macs...)
	f.eventually("promiscuous", func() bool { a := f.host.Status().Filter; return a.Promisc && len(a.Unicast) == 4 })
	if n := f.reaches(macs); n != len(macs) {
		t.Errorf("%d of %d macvlan devices get frames", n, len(macs))
	}
	if r := f.host.Status().LastRefusal; r != nil {
		t.Errorf("refused: %+v", r)
	}
	f.ip("link del c00000000")
	f.ip("link del c00000001")
	f.eventually("no longer promiscuous", func() bool { return !f.host.Status().Filter.Promisc })
}

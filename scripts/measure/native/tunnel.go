package native

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// The device and the addresses of a tunnel through a subject.
const (
	tunnelDev  = "vxlan0"
	tunnelHost = "10.80.0.2"
	tunnelLAN  = "10.80.0.1"
)

// tunnelled is traffic through a tunnel. stop also removes the tunnel.
type tunnelled struct {
	traffic
	st *topology
}

// newTunnelled makes a VXLAN tunnel between the host and the LAN. load starts the traffic
// through the tunnel.
func newTunnelled(st *topology, load func() (traffic, error)) (traffic, error) {
	t := &tunnelled{st: st}
	err := errors.Join(tunnel(st.host, st.hostDev, hostAddr, lanAddr, tunnelHost),
		tunnel(st.lan, "lan0", lanAddr, hostAddr, tunnelLAN))
	if err == nil {
		t.traffic, err = load()
	}
	if err != nil {
		return nil, errors.Join(err, t.end())
	}
	return t, nil
}

// tunnel makes one end of the tunnel.
func tunnel(ns, dev, here, there, addr string) error {
	return testbed.In(ns, func(h *netlink.Handle) error {
		below, err := h.LinkByName(dev)
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = tunnelDev
		attrs.MTU = below.Attrs().MTU - 50 // IPv4, UDP, VXLAN, Ethernet
		vxlan := &netlink.Vxlan{
			LinkAttrs: attrs, VxlanId: 78, VtepDevIndex: below.Attrs().Index, Port: 4789, Learning: true,
			SrcAddr: net.ParseIP(here), Group: net.ParseIP(there),
		}
		if err := h.LinkAdd(vxlan); err != nil {
			return fmt.Errorf("making a VXLAN tunnel on %s: %w", dev, err)
		}
		own, err := netlink.ParseAddr(addr + "/24")
		if err != nil {
			return err
		}
		return errors.Join(h.AddrAdd(vxlan, own), h.LinkSetUp(vxlan))
	})
}

func (t *tunnelled) stop() error { return errors.Join(t.traffic.stop(), t.end()) }

// end removes the tunnel.
func (t *tunnelled) end() error {
	var errs []error
	for _, ns := range []string{t.st.host, t.st.lan} {
		errs = append(errs, testbed.In(ns, func(h *netlink.Handle) error {
			link, err := h.LinkByName(tunnelDev)
			if errors.As(err, &netlink.LinkNotFoundError{}) {
				return nil
			}
			if err != nil {
				return err
			}
			return h.LinkDel(link)
		}))
	}
	return errors.Join(errs...)
}

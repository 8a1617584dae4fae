package main

import (
	"fmt"

	"github.com/splitnic/splitnic/verbs"
)

// checkPort reports the state of a port, and what is wrong with its MTU.
func checkPort(r *report, name, driver string, p verbs.PortAttr) {
	infiniband := p.LinkLayer == verbs.LinkInfiniBand
	switch {
	case p.State != verbs.PortActive && infiniband:
		r.missing(name, p.String(), "a subnet manager (opensm, or that of the switch) makes it active; look at the cable")
	case p.State != verbs.PortActive:
		r.missing(name, p.String(), "set the netdevice or the cable up")
	case infiniband && p.NeedsGRH && p.GIDs == 0:
		r.missing(name, p.String()+"; its packets need GIDs, and it has none", "configure the virtual function's GUID")
	case infiniband:
		r.ok(name, "%s%s", p, map[bool]string{true: ", packets need GIDs"}[p.NeedsGRH])
	case p.ActiveMTU < 4096 && driver == "rdma_rxe":
		r.warn(name, p.String(), "Soft-RoCE halves its throughput with small packets: give the netdevice an MTU of 4200 or more")
	case p.ActiveMTU < p.MaxMTU:
		r.warn(name, p.String(), fmt.Sprintf("raise the netdevice's MTU to use the full %d bytes", p.MaxMTU))
	default:
		r.ok(name, "%s", p)
	}
}

// checkRoom reports that packets with headers around the path MTU do not fit a netdevice: some
// drivers derive the path MTU from an MTU of the same number of bytes.
func checkRoom(r *report, name string, gid verbs.GIDEntry, port verbs.PortAttr, mtu int) {
	need := port.ActiveMTU + roceHeaders + ipv6Header
	if gid.GID.Addr().Is4() {
		need = port.ActiveMTU + roceHeaders + ipv4Header
	}
	if mtu < need {
		r.warn(name, fmt.Sprintf("packets of the path MTU, %d bytes, do not fit the MTU of %s, %d", port.ActiveMTU, gid.Netdev, mtu),
			fmt.Sprintf("ip link set %s mtu %d, or more, here and at the switches", gid.Netdev, need))
	}
}

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/verbs"
)

// chosenDevices returns all devices, or the one called only if that is not empty. If there is
// none, it adds an error to r.
func chosenDevices(r *report, only string) []verbs.DeviceInfo {
	devices, err := verbs.Devices()
	if err != nil {
		r.missing("devices", err.Error(), "modprobe ib_uverbs, and the driver of the adapter")
		return nil
	}
	chosen := slices.DeleteFunc(slices.Clone(devices), func(d verbs.DeviceInfo) bool {
		return only != "" && d.Name != only
	})
	if len(chosen) == 0 {
		noDevice(r, only, devices, kernelDevices())
	}
	return chosen
}

// kernelDevices returns the names of the kernel's RDMA devices, whether or not libibverbs has the
// library of their driver.
func kernelDevices() (names []string) {
	entries, _ := os.ReadDir("/sys/class/infiniband") // without a device there may be no directory
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func noDevice(r *report, only string, devices []verbs.DeviceInfo, kernel []string) {
	switch {
	case len(devices) == 0 && len(kernel) > 0:
		r.missing("devices", "libibverbs has no driver for those of the kernel: "+strings.Join(kernel, ", "),
			"apt install ibverbs-providers, or what has the drivers of libibverbs on this distribution")
		return
	case len(devices) == 0:
		r.missing("devices", "no RDMA device",
			"load the adapter's driver, or for Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0")
		return
	}
	r.missing("devices", fmt.Sprintf("no RDMA device %q", only), "there are: "+strings.Join(daemon.DeviceNames(devices), ", "))
}

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

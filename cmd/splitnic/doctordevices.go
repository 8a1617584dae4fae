package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/settings"
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
	r.missing("devices", fmt.Sprintf("no RDMA device %q", only),
		"there are: "+strings.Join(daemon.DeviceNames(devices), ", "))
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

// classPlaces are the places where the traffic class of sessions is set.
type classPlaces struct {
	config string // directory of configuration files
	proc   string // processes, whose flags count
}

// check says that packets of sessions have no traffic class on a port of RoCE, unless it is set.
// Soft-RoCE and Soft-iWARP send through the kernel, with the means of which packets are marked.
func (l classPlaces) check(r *report, device, driver string, p verbs.PortAttr) {
	soft := driver == "rdma_rxe" || driver == "siw"
	if p.LinkLayer != verbs.LinkEthernet || soft || l.set(device) {
		return
	}
	r.ok(device, "port %d: packets have no traffic class without --traffic-class: see docs/deploy.md, Loss on the fabric",
		p.Port)
}

// set reports whether the traffic class of sessions of a device is set in a configuration file, or by a
// flag of a process.
func (l classPlaces) set(device string) bool {
	sets := func(value func(key string) string) bool {
		class, err := strconv.ParseUint(value("traffic-class"), 0, 8)
		of := value("device")
		return err == nil && class != 0 && (of == "" || of == device)
	}
	for _, args := range commandLines(l.proc) {
		if sets(inCommand(args)) {
			return true
		}
	}
	files, _ := filepath.Glob(filepath.Join(l.config, "*.yaml"))
	return slices.ContainsFunc(files, func(path string) bool { return sets(inFile(path)) })
}

// inFile returns a function that returns the value of a key of a configuration file, "" if it has none.
// The process that reads the file says what is wrong with it.
func inFile(path string) func(key string) string {
	var entries []settings.Entry
	if text, err := os.ReadFile(path); err == nil {
		if body, err := settings.Parse(path, text); err == nil {
			entries, _ = settings.Map(body)
		}
	}
	return func(key string) string {
		for _, e := range entries {
			if words, err := settings.Scalars(e.Value); e.Key == key && err == nil && len(words) == 1 {
				return words[0]
			}
		}
		return ""
	}
}

// inCommand returns such a function for the flags of a command line.
func inCommand(args []string) func(key string) string {
	return func(key string) string {
		for i, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--"+key+"="); ok {
				return value
			}
			if arg == "--"+key && i+1 < len(args) {
				return args[i+1]
			}
		}
		return ""
	}
}

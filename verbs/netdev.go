package verbs

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Mellanox/rdmamap"
)

const (
	classDir    = "/sys/class/infiniband"
	rxeDriver   = "rdma_rxe"
	uverbsChars = "/dev/infiniband/uverbs"
)

// DeviceOf is the RDMA device of a netdevice.
func DeviceOf(netdev string) (string, error) {
	dev, err := rdmamap.GetRdmaDeviceForNetdevice(netdev)
	if err == nil && dev == "" {
		err = os.ErrNotExist
	}
	if err != nil {
		return "", fmt.Errorf("RDMA device of netdevice %s: %w", netdev, err)
	}
	return dev, nil
}

// NetdevOf are the names of the netdevices behind the ports of an RDMA device,
// sorted. Netdevices in other network namespaces are among them: sysfs names
// them all the same. It reads a file for each entry of the GID tables, of which
// Soft-RoCE has 1024, most of them empty.
func NetdevOf(device string) ([]string, error) {
	return netdevsIn(classDir, device)
}

func netdevsIn(class, device string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(class, device)); err != nil {
		return nil, fmt.Errorf("netdevices of RDMA device %s: %w", device, err)
	}
	files, err := filepath.Glob(filepath.Join(class, device, "ports", "*", "gid_attrs", "ndevs", "*"))
	if err != nil {
		return nil, fmt.Errorf("netdevices of RDMA device %s: %w", device, err)
	}
	var names []string
	for _, f := range files {
		// An empty slot of the GID table answers EINVAL.
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if n := strings.TrimSpace(string(b)); n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names, nil
}

// DevicesAt are the names of the RDMA devices that an IP address of this machine
// belongs to, sorted: those with a GID for it or, as on InfiniBand no GID is an
// IP address, that of the netdevice which has it.
func DevicesAt(addr netip.Addr) ([]string, error) {
	return devicesAt(classDir, addr, netdevs, DeviceOf)
}

func devicesAt(
	class string, addr netip.Addr, netdevs func() ([]netdev, error), deviceOf func(netdev string) (string, error),
) ([]string, error) {
	addr = addr.Unmap().WithZone("")
	names, err := devicesAtIn(class, addr)
	if err != nil || len(names) > 0 {
		return names, err
	}
	all, err := netdevs()
	if err != nil {
		return nil, fmt.Errorf("looking for the netdevice with %v: %w", addr, err)
	}
	for _, n := range all {
		if n.prefixOf(addr).IsValid() {
			if device, err := deviceOf(n.name); err == nil { // most have none
				names = append(names, device)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// netdevs are those of this network namespace.
func netdevs() ([]netdev, error) {
	ifis, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []netdev
	for _, ifi := range ifis {
		all = append(all, netdevByIndex(ifi.Index))
	}
	return all, nil
}

// devicesAtIn are those with a GID for addr.
func devicesAtIn(class string, addr netip.Addr) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(class, "*", "ports", "*", "gids", "*"))
	if err != nil {
		return nil, fmt.Errorf("looking for the RDMA device with %v: %w", addr, err)
	}
	var names []string
	for _, f := range files {
		rest, err := filepath.Rel(class, f)
		if err != nil {
			return nil, err
		}
		device, _, _ := strings.Cut(rest, string(filepath.Separator))
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a slot that some drivers leave unreadable
		}
		gid, err := netip.ParseAddr(strings.TrimSpace(string(b)))
		if err == nil && gid.Unmap() == addr && !slices.Contains(names, device) {
			names = append(names, device)
		}
	}
	return names, nil // Glob sorts
}

// charDevOf is the uverbs character device of an RDMA device, or empty.
func charDevOf(device string) string {
	for _, f := range rdmamap.GetRdmaCharDevices(device) {
		if strings.HasPrefix(f, uverbsChars) {
			return f
		}
	}
	return ""
}

// driverIn is the kernel driver of an RDMA device. Soft-RoCE has no bus device
// and so no driver link; it alone has the attribute "parent", the name of its
// netdevice.
func driverIn(class, device string) string {
	dir := filepath.Join(class, device)
	if link, err := os.Readlink(filepath.Join(dir, "device", "driver")); err == nil {
		return filepath.Base(link)
	}
	if _, err := os.Stat(filepath.Join(dir, "parent")); err == nil {
		return rxeDriver
	}
	return ""
}

// windowBounds says whether a driver's devices check the bounds of a memory
// window. Soft-RoCE checks the region's alone.
func windowBounds(driver string) bool { return driver != rxeDriver }

// netdev is a netdevice of this network namespace with its addresses.
type netdev struct {
	name  string
	addrs []netip.Prefix
}

// netdevByIndex is the netdevice of that index, or the zero netdev if there is
// none in this network namespace.
func netdevByIndex(index int) netdev {
	ifi, err := net.InterfaceByIndex(index)
	if err != nil {
		return netdev{}
	}
	n := netdev{name: ifi.Name}
	// Without its addresses the netdevice still has a name.
	addrs, _ := ifi.Addrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			n.addrs = append(n.addrs, p)
		}
	}
	return n
}

// prefixOf is the subnet that addr has on the netdevice, if it is there.
func (n netdev) prefixOf(addr netip.Addr) netip.Prefix {
	for _, p := range n.addrs {
		if p.Addr().WithZone("") == addr {
			return p.Masked()
		}
	}
	return netip.Prefix{}
}

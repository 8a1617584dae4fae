package verbs

import (
	"fmt"
	"io/fs"
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

// DeviceOf returns the name of the RDMA device of a netdevice.
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

// NetdevOf returns the sorted names of the netdevices of all ports of an RDMA device. They
// include netdevices in other network namespaces, because sysfs names these as well. NetdevOf
// reads one file for each entry of the GID tables. Soft-RoCE has 1024 entries, most of them
// empty.
func NetdevOf(device string) ([]string, error) {
	return netdevsIn(classDir, device)
}

func netdevsIn(class, device string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(class, device)); err != nil {
		return nil, fmt.Errorf("netdevices of RDMA device %s: %w", device, err)
	}
	tree := os.DirFS(filepath.Join(class, device))
	files, _ := fs.Glob(tree, "ports/*/gid_attrs/ndevs/*") // the pattern is well formed
	var names []string
	for _, f := range files {
		// Reading an empty entry of the GID table fails with EINVAL.
		b, err := fs.ReadFile(tree, f)
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

// DevicesAt returns the sorted names of the RDMA devices that have an IP address of this
// machine: the devices with a GID for the address. If there are none, it returns the devices
// of the netdevices that have the address, because on InfiniBand no GID is an IP address.
func DevicesAt(addr netip.Addr) ([]string, error) {
	return devicesAt(classDir, addr, netdevs, DeviceOf)
}

func devicesAt(
	class string, addr netip.Addr, netdevs func() ([]netdev, error), deviceOf func(netdev string) (string, error),
) ([]string, error) {
	addr = addr.Unmap().WithZone("")
	names := devicesAtIn(class, addr)
	if len(names) > 0 {
		return names, nil
	}
	all, err := netdevs()
	if err != nil {
		return nil, fmt.Errorf("looking for the netdevice with %v: %w", addr, err)
	}
	for _, n := range all {
		if n.prefixOf(addr).IsValid() {
			if device, err := deviceOf(n.name); err == nil { // most netdevices have no RDMA device
				names = append(names, device)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// netdevs returns the netdevices of this network namespace.
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

// devicesAtIn returns the sorted names of the RDMA devices with a GID for addr.
func devicesAtIn(class string, addr netip.Addr) (names []string) {
	tree := os.DirFS(class)
	files, _ := fs.Glob(tree, "*/ports/*/gids/*") // sorted; the pattern is well formed
	for _, f := range files {
		device, _, _ := strings.Cut(f, "/")
		b, err := fs.ReadFile(tree, f)
		if err != nil {
			continue // some drivers have unreadable entries
		}
		gid, err := netip.ParseAddr(strings.TrimSpace(string(b)))
		if err == nil && gid.Unmap() == addr && !slices.Contains(names, device) {
			names = append(names, device)
		}
	}
	return names
}

// charDevOf returns the uverbs character device of an RDMA device, or "".
func charDevOf(device string) string {
	for _, f := range rdmamap.GetRdmaCharDevices(device) {
		if strings.HasPrefix(f, uverbsChars) {
			return f
		}
	}
	return ""
}

// driverIn returns the kernel driver of an RDMA device, or "" if it is unknown. Soft-RoCE has
// no bus device and therefore no driver link. It is the only driver with the attribute
// "parent", the name of its netdevice.
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

// windowBounds reports whether the devices of a driver check the bounds of a memory window.
// Soft-RoCE checks only the bounds of the region.
func windowBounds(driver string) bool { return driver != rxeDriver }

// netdev is a netdevice of this network namespace with its addresses.
type netdev struct {
	name  string
	addrs []netip.Prefix
}

// netdevByIndex returns the netdevice with this index, or the zero netdev if there is none in
// this network namespace.
func netdevByIndex(index int) netdev {
	ifi, err := net.InterfaceByIndex(index)
	if err != nil {
		return netdev{}
	}
	n := netdev{name: ifi.Name}
	// If the addresses cannot be read, the name is still useful.
	addrs, _ := ifi.Addrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			n.addrs = append(n.addrs, p)
		}
	}
	return n
}

// prefixOf returns the subnet of addr on the netdevice, or the zero Prefix if the netdevice
// does not have addr.
func (n netdev) prefixOf(addr netip.Addr) netip.Prefix {
	for _, p := range n.addrs {
		if p.Addr().WithZone("") == addr {
			return p.Masked()
		}
	}
	return netip.Prefix{}
}

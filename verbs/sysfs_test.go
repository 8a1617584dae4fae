package verbs

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// sysfs makes a directory tree like /sys/class/infiniband with these files, and returns its path.
func sysfs(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDriverFromSysfs(t *testing.T) {
	root := sysfs(t, map[string]string{
		"rxe0/parent":          "eth0\n",
		"siw0/node_guid":       "0\n",
		"mlx5_0/device/vendor": "0x15b3\n",
		// Another driver has a file with this name: the device is not Soft-RoCE.
		"mlx5_0/parent": "x\n",
	})
	if err := os.Symlink("/sys/bus/pci/drivers/mlx5_core", filepath.Join(root, "mlx5_0/device/driver")); err != nil {
		t.Fatal(err)
	}
	for dev, want := range map[string]string{"rxe0": "rdma_rxe", "siw0": "", "mlx5_0": "mlx5_core", "none": ""} {
		if got := driverIn(root, dev); got != want {
			t.Errorf("driver of %s is %q, want %q", dev, got, want)
		}
	}
	if windowBounds("rdma_rxe") || !windowBounds("mlx5_core") {
		t.Error("all but Soft-RoCE enforce the bounds of a window")
	}
}

func TestNetdevsFromSysfs(t *testing.T) {
	root := sysfs(t, map[string]string{
		"mlx5_0/ports/1/gid_attrs/ndevs/0": "eth1\n",
		"mlx5_0/ports/1/gid_attrs/ndevs/1": "eth1\n",
		"mlx5_0/ports/1/gid_attrs/ndevs/2": "eth0\n",
		"mlx5_0/ports/2/gid_attrs/ndevs/0": "eth2\n",
		"mlx5_0/ports/2/gid_attrs/ndevs/1": "",
		"ib0/ports/1/state":                "4: ACTIVE\n",
	})
	for dev, want := range map[string][]string{"mlx5_0": {"eth0", "eth1", "eth2"}, "ib0": nil} {
		if got, err := netdevsIn(root, dev); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", dev, got, err)
		}
	}
	if _, err := netdevsIn(root, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown device: %v", err)
	}
}

func TestDevicesAtFromSysfs(t *testing.T) {
	root := sysfs(t, map[string]string{
		"mlx5_0/ports/1/gids/0": "fe80:0000:0000:0000:0e42:a1ff:fe00:0001\n",
		"mlx5_0/ports/1/gids/1": "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
		"mlx5_0/ports/1/gids/2": "0000:0000:0000:0000:0000:ffff:0a00:0001\n", // the same address for RoCE v1 and v2
		"mlx5_0/ports/1/gids/3": "0000:0000:0000:0000:0000:0000:0000:0000\n",
		"mlx5_0/ports/2/gids/0": "0000:0000:0000:0000:0000:ffff:0a00:0002\n",
		"mlx5_1/ports/1/gids/0": "2001:0db8:0000:0000:0000:0000:0000:0001\n",
		"mlx5_1/ports/1/gids/1": "0000:0000:0000:0000:0000:ffff:0a00:0002\n",
		"mlx5_1/ports/1/gids/2": "",
		"mlx5_1/ports/1/state":  "4: ACTIVE\n",
	})
	for addr, want := range map[string][]string{
		"10.0.0.1": {"mlx5_0"}, "10.0.0.2": {"mlx5_0", "mlx5_1"}, "10.0.0.3": nil,
		"2001:db8::1": {"mlx5_1"}, "fe80::e42:a1ff:fe00:1": {"mlx5_0"},
	} {
		if got := devicesAtIn(root, netip.MustParseAddr(addr)); !slices.Equal(got, want) {
			t.Errorf("%s: %q", addr, got)
		}
	}
	if got := devicesAtIn(filepath.Join(root, "none"), netip.MustParseAddr("10.0.0.1")); got != nil {
		t.Errorf("a machine without RDMA: %q", got)
	}
}

// TestDevicesAt looks up devices by address. It expects a lookup by GID first, and a lookup by
// netdevice only if no device has a GID with the address.
func TestDevicesAt(t *testing.T) {
	root := sysfs(t, map[string]string{
		"mlx5_0/ports/1/gids/0/directory": "", // cannot be read
		"mlx5_0/ports/1/gids/2":           "fe80:0000:0000:0000:0e42:a1ff:fe00:0001\n",
		"mlx5_0/ports/1/gids/1":           "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
	})
	prefix := netip.MustParsePrefix
	asked := 0
	netdevs := func() ([]netdev, error) {
		asked++
		return []netdev{
			{name: "ib1", addrs: []netip.Prefix{prefix("10.0.0.9/24"), prefix("10.0.0.1/24")}},
			{name: "eth0", addrs: []netip.Prefix{prefix("10.0.0.9/24"), prefix("10.0.0.7/24")}},
			{name: "ib0", addrs: []netip.Prefix{prefix("10.0.0.9/16")}},
			{name: "ib0.8001", addrs: []netip.Prefix{prefix("10.0.0.9/16")}},
			{name: "ib2", addrs: []netip.Prefix{prefix("10.0.0.8/24")}},
		}, nil
	}
	deviceOf := func(netdev string) (string, error) {
		device, ok := map[string]string{"ib0": "hca0", "ib0.8001": "hca0", "ib1": "hca1", "ib2": "hca2"}[netdev]
		if !ok {
			return "", fs.ErrNotExist
		}
		return device, nil
	}
	for addr, want := range map[string][]string{
		"10.0.0.1": {"mlx5_0"}, "::ffff:10.0.0.1": {"mlx5_0"}, "fe80::e42:a1ff:fe00:1%eth0": {"mlx5_0"},
		"10.0.0.9": {"hca0", "hca1"}, "10.0.0.7": nil, "10.0.0.6": nil,
	} {
		asked = 0
		got, err := devicesAt(root, netip.MustParseAddr(addr), netdevs, deviceOf)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", addr, got, err)
		}
		if byGID := len(want) == 1; byGID != (asked == 0) {
			t.Errorf("%s: the netdevices were looked at %d times", addr, asked)
		}
	}
	failing := func() ([]netdev, error) { return nil, fs.ErrPermission }
	if _, err := devicesAt(root, netip.MustParseAddr("10.0.0.9"), failing, deviceOf); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("without the netdevices: %v", err)
	}
}

// TestNetdevs expects the loopback device with its address.
func TestNetdevs(t *testing.T) {
	all, err := netdevs()
	if err != nil {
		t.Fatal(err)
	}
	loopback := netip.MustParseAddr("127.0.0.1")
	if !slices.ContainsFunc(all, func(n netdev) bool { return n.name == "lo" && n.prefixOf(loopback).IsValid() }) {
		t.Errorf("%+v", all)
	}
}

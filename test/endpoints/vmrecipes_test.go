package endpoints

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// The tests in this file use the recipes of docs/virtual-machines.md, with guests of QEMU and of
// libvirt.

const vmAddr = "10.78.0.3"

// works expects the guest's card to work: pings from the LAN, up to packets of the full MTU, and
// TCP in both directions.
func (m *virtualMachine) works(lanNS string) {
	m.t.Helper()
	m.tell("up " + vmAddr + "/24 1500")
	testenv.Ping(m.t, lanNS, vmAddr)
	testenv.Ping(m.t, lanNS, vmAddr, "-M", "do", "-s", "1472")
	if err := exchange(lanNS, vmAddr, 1, 4<<20); err != nil {
		m.t.Error(err)
	}
	if n := testenv.CsumErrors(m.t, lanNS); n != 0 {
		m.t.Errorf("%d segments with wrong checksums", n)
	}
}

// ownNode makes the next device in a namespace get an interface index whose node in /dev is not in
// use by another namespace: nodes of macvtap devices are named by these indexes, in one directory
// for all namespaces.
func ownNode(t *testing.T, ns string) {
	t.Helper()
	for {
		testenv.Run(t, ns, "ip", "link", "add", "name", "next", "type", "bridge")
		next := testenv.Link(t, ns, "next").Attrs().Index + 1
		testenv.Run(t, ns, "ip", "link", "delete", "next")
		if _, err := os.Stat(fmt.Sprintf("/dev/tap%d", next)); os.IsNotExist(err) {
			return
		}
	}
}

// TestVMDirect gives a guest the netdevice itself, by macvtap in passthru mode. The guest has the
// netdevice's address, and needs no policy.
func TestVMDirect(t *testing.T) {
	testenv.NeedVM(t)
	mac := func(s *testbed) string { return testenv.Link(t, s.hostNS, "sn0").Attrs().HardwareAddr.String() }
	t.Run("qemu", func(t *testing.T) {
		s := newTestbed(t, "macvtap", 1500)
		ownNode(t, s.hostNS)
		testenv.Run(t, s.hostNS, "ip", strings.Fields("link add link sn0 name vm1 type macvtap mode passthru")...)
		testenv.Up(t, s.hostNS, "vm1")
		device := fmt.Sprintf("/dev/tap%d", testenv.Link(t, s.hostNS, "vm1").Attrs().Index)
		vm := boot(t, s.hostNS, device,
			"-netdev", "tap,id=net0,fd=3", "-device", "virtio-net-pci,netdev=net0,mac="+mac(s))
		vm.works(s.lanNS)
	})
	t.Run("libvirt", func(t *testing.T) {
		s := newTestbed(t, "macvtap", 1500)
		ownNode(t, s.hostNS)
		vm := newLibvirt(t, s.hostNS).boot(`<interface type='direct'><mac address='` + mac(s) + `'/>
<source dev='sn0' mode='passthrough'/><model type='virtio'/></interface>`)
		vm.works(s.lanNS)
	})
}

// TestVMBridge gives a guest a port of a bridge; the netdevice is another port. The guest has its
// own MAC address: no frames may pass from or to it until a policy permits this.
func TestVMBridge(t *testing.T) {
	testenv.NeedVM(t)
	const mac = "52:54:00:12:34:56"
	for name, start := range map[string]func(*testing.T, *testbed) *virtualMachine{
		"qemu": func(t *testing.T, s *testbed) *virtualMachine {
			return boot(t, s.hostNS, os.DevNull, "-netdev", "tap,id=net0,ifname=vm1,script=no,downscript=no",
				"-device", "virtio-net-pci,netdev=net0,mac="+mac)
		},
		"libvirt": func(t *testing.T, s *testbed) *virtualMachine {
			return newLibvirt(t, s.hostNS).boot(`<interface type='bridge'><mac address='` + mac + `'/>
<source bridge='br0'/><target dev='vm1'/><model type='virtio'/></interface>`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestbed(t, "macvtap", 1500)
			testenv.Bridge(t, s.hostNS, "br0", "sn0")
			vm := start(t, s)
			testenv.With(t, s.hostNS, func(h *netlink.Handle) error {
				return h.LinkSetMaster(testenv.Link(t, s.hostNS, "vm1"), testenv.Link(t, s.hostNS, "br0"))
			})
			testenv.Up(t, s.hostNS, "vm1")
			vm.tell("up " + vmAddr + "/24 1500")
			refused := func() bool { return s.unit.Status().Hosts[0].Statistics.TxSource > 0 }
			testenv.Eventually(t, refused, "no frame of the guest's address was refused")
			p, err := policy.Parse("policy.yaml", []byte("default: {macs: [own, '"+mac+"'], promiscuous: yes}"))
			if err != nil {
				t.Fatal(err)
			}
			s.unit.SetPolicy(p)
			promisc := func() bool { return s.unit.Status().Hosts[0].Filter.Promisc }
			testenv.Eventually(t, promisc, "no promiscuous mode")
			vm.works(s.lanNS)
		})
	}
}

// TestVMVhostUserLibvirt gives a guest of libvirt a vhost-user port.
func TestVMVhostUserLibvirt(t *testing.T) {
	testenv.NeedVM(t)
	w := newWorld(t)
	unitNS, lanNS := testenv.NetNS(t), testenv.NetNS(t)
	w.unitOnVeth(unitNS, lanNS, "macvtap", 1500, 1)
	a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
	d, err := vhostuser.Open(vhostuser.Config{
		Address: a, Pairs: 1, Offloads: vnet.AllOffloads, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	_, h, _ := w.host("alpha", func(c *host.Config) { c.Netdev = host.VhostUser("vm0", d) })
	testenv.Eventually(t, func() bool { return h.Status().Netdevice.Carrier }, "a session")
	vm := newLibvirt(t, unitNS).boot(fmt.Sprintf(`<interface type='vhostuser'><mac address='%s'/>
<source type='unix' path='%s' mode='client'><reconnect enabled='yes' timeout='1'/></source>
<model type='virtio'/></interface>`, h.Status().Netdevice.MAC, a.Path))
	vm.works(lanNS)
}

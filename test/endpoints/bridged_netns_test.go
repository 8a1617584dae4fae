package endpoints

import (
	"net"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// TestNetnsBridgedPromiscuous puts the host's netdevice into a bridge, with a machine behind it:
// the bridge makes the netdevice promiscuous. The policy has to allow this if the LAN interface
// receives for one address only. LAN interfaces of kind tap, ports of a bridge, need no permission.
func TestNetnsBridgedPromiscuous(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet", "tap"} {
		t.Run(kind, func(t *testing.T) {
			testenv.NeedTools(t, "ping")
			policy := "default:\n  promiscuous: yes\n  macs: any\n"
			if kind == "tap" {
				policy = "default:\n  macs: any\n"
			}
			s := newShared(t, kind, policy)
			testenv.Address(t, s.lanNS, "lan0", lanAddr+"/24")
			hostNS, machine := testenv.NetNS(t), testenv.NetNS(t)
			h := bridgedHost(t, s, hostNS)
			testenv.Veth(t, hostNS, "vm0", machine, "eth0")
			testenv.Bridge(t, hostNS, "br0", "sn0", "vm0")
			testenv.Address(t, machine, "eth0", "10.78.0.3/24")
			testenv.Eventually(t, func() bool {
				hosts := s.unit.Status().Hosts
				return len(hosts) == 1 && hosts[0].Filter.Promisc
			}, "the I/O unit knowing that the host is promiscuous")
			testenv.Run(t, machine, "ping", "-c", "3", "-i", "0.01", "-W", "10", lanAddr)
			if err := transfer(machine, s.lanNS, lanAddr, 1, 16<<20); err != nil {
				t.Error(err)
			}
			if err := transfer(s.lanNS, machine, "10.78.0.3", 2, 16<<20); err != nil {
				t.Error(err)
			}
			own, err := net.ParseMAC(s.unit.Status().Hosts[0].MAC)
			if got := testenv.Link(t, machine, "eth0").Attrs().HardwareAddr; err != nil || got.String() == own.String() {
				t.Errorf("the machine has the host's address %v: %v", got, err)
			}
			if r := h.Status().LastRefusal; r != nil {
				t.Errorf("refused: %+v", r)
			}
			if n := testenv.CsumErrors(t, machine); n != 0 {
				t.Errorf("%d packets with a wrong checksum", n)
			}
		})
	}
}

// bridgedHost starts a host with the netdevice sn0 and waits for its session.
func bridgedHost(t *testing.T, s *shared, ns string) *host.Host {
	t.Helper()
	dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, Queues: 1, Offloads: vnet.AllOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	_, h, _ := s.world.host("alpha", func(c *host.Config) { c.Netdev = host.TAP(dev) })
	testenv.Eventually(t, func() bool { return h.Status().State == host.Connected }, "the host being connected")
	return h
}

// TestNetnsBridgeAddress lets the machine itself use the bridge of docs/virtual-machines.md.
// Unless it is given a MAC address, a bridge takes the lowest address of its ports. This may be
// the address of a virtual machine's port, from which the policy permits no frame.
func TestNetnsBridgeAddress(t *testing.T) {
	testenv.NeedTools(t, "ping")
	s := newShared(t, "packet", "default:\n  promiscuous: yes\n  macs: [own, 52:54:00:*]\n")
	testenv.Address(t, s.lanNS, "lan0", lanAddr+"/24")
	hostNS, machine := testenv.NetNS(t), testenv.NetNS(t)
	h := bridgedHost(t, s, hostNS)
	testenv.Run(t, hostNS, "sh", "-ec", `ip link add br0 address $(cat /sys/class/net/sn0/address) type bridge
ip link set br0 up
ip link set sn0 master br0`)
	testenv.Veth(t, hostNS, "vm1", machine, "eth0")
	testenv.Run(t, hostNS, "ip", "link", "set", "vm1", "address", "02:00:00:00:00:01")
	testenv.Run(t, machine, "ip", "link", "set", "eth0", "address", "52:54:00:12:34:56")
	testenv.Run(t, hostNS, "ip", "link", "set", "vm1", "master", "br0", "up")
	testenv.Address(t, hostNS, "br0", "10.78.0.2/24")
	testenv.Address(t, machine, "eth0", "10.78.0.3/24")
	testenv.Eventually(t, func() bool {
		hosts := s.unit.Status().Hosts
		return len(hosts) == 1 && hosts[0].Filter.Promisc
	}, "promiscuous mode")
	testenv.Run(t, hostNS, "ping", "-c", "3", "-i", "0.01", "-W", "10", lanAddr)
	testenv.Run(t, machine, "ping", "-c", "3", "-i", "0.01", "-W", "10", lanAddr)
	if r := h.Status().LastRefusal; r != nil {
		t.Errorf("refused: %+v", r)
	}
}

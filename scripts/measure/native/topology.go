package native

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// Addresses. They are the same in every topology, because each topology has its own network
// namespaces. A station has every address of its network of flows. So one socket receives frames
// of as many flows as there are addresses.
const (
	hostAddr  = "10.78.0.2"
	lanAddr   = "10.78.0.1"
	hostFlows = "10.79.2.0/24"
	lanFlows  = "10.79.1.0/24"
)

// The device and the addresses of a VXLAN tunnel between host and LAN.
const (
	tunnelDev  = "vxlan0"
	tunnelHost = "10.80.0.2"
	tunnelLAN  = "10.80.0.1"
)

// topology is the network in which a subject is measured: a host, a middle, and a station on a
// LAN, each in its own network namespace.
type topology struct {
	host, middle, lan string // network namespaces
	nic               string // the netdevice on which the port on the LAN is made
	hostDev, lanDev   string // the netdevices of host and LAN
}

// newTopology makes the namespaces, and the devices that neither the subject nor network.join makes.
func newTopology(b *testbed.Bed, s subject) (*topology, error) {
	st := &topology{nic: "eth1", hostDev: "sn0", lanDev: "lan0"}
	for name, ns := range map[string]*string{"h": &st.host, "m": &st.middle, "l": &st.lan} {
		var err error
		if *ns, err = b.NetNS(name); err != nil {
			return nil, err
		}
		err = netns.Do(*ns, func() error {
			// IPv6 would send frames by itself. Fragments of incomplete datagrams would disturb later
			// measurements for 30 s.
			err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644)
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return errors.Join(err, os.WriteFile("/proc/sys/net/ipv4/ipfrag_time", []byte("1"), 0o644))
		})
		if err != nil {
			return nil, err
		}
	}
	if n, ok := networks[s.what]; ok {
		st.hostDev, st.lanDev = n.device, n.device
		return st, nil
	}
	if s.process() {
		if s.port == "tap" {
			st.nic = "br0"
			return st, errors.Join(testbed.Pair(st.middle, "eth1", st.lan, "lan0"), bridged(st.middle, "eth1"))
		}
		return st, testbed.Pair(st.middle, "eth1", st.lan, "lan0")
	}
	st.hostDev = "eth0"
	if s.what == veth {
		return st, testbed.Pair(st.host, "eth0", st.lan, "lan0")
	}
	return st, errors.Join(testbed.Pair(st.host, "eth0", st.middle, "port0"),
		testbed.Pair(st.middle, "eth1", st.lan, "lan0"), bridged(st.middle, "port0", "eth1"))
}

// bridged makes the bridge br0 with the given ports.
func bridged(ns string, ports ...string) error {
	commands := []string{"link add br0 type bridge", "link set br0 up"}
	for _, p := range ports {
		commands = append(commands, "link set "+p+" master br0")
	}
	return testbed.IP(ns, commands...)
}

// configure waits until the host's netdevice exists and has a carrier. Then it gives the
// stations their addresses.
func (st *topology) configure(ctx context.Context) error {
	err := testbed.Until(ctx, "the host's netdevice", func() error {
		l, err := testbed.Link(st.host, st.hostDev)
		if err != nil {
			return err
		}
		// The devices of tunnels have a carrier from the beginning, and no operational state.
		a := l.Attrs()
		if a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown && a.RawFlags&unix.IFF_LOWER_UP != 0 {
			return nil
		}
		return fmt.Errorf("%s is %s", st.hostDev, a.OperState)
	})
	return errors.Join(err, station(st.host, st.hostDev, hostAddr, hostFlows, lanFlows, lanAddr),
		station(st.lan, st.lanDev, lanAddr, lanFlows, hostFlows, hostAddr))
}

// station gives a device its address, makes all addresses of own local, and adds a route to the
// addresses of other through the neighbour via. With an address of this prefix on the loopback
// device, the kernel treats the whole network as local.
func station(ns, dev, addr, own, other, via string) error {
	return testbed.IP(ns, "addr add "+addr+"/24 dev "+dev, "addr add "+own+" dev lo", "route add "+other+" via "+via)
}

// tunnelled is a stream through a VXLAN tunnel between the host and the LAN. stop also removes the
// tunnel.
type tunnelled struct {
	traffic
	st *topology
}

func newTunnelled(st *topology, toLAN bool) (traffic, error) {
	t := &tunnelled{st: st}
	err := errors.Join(tunnel(st.host, st.hostDev, hostAddr, lanAddr, tunnelHost),
		tunnel(st.lan, st.lanDev, lanAddr, hostAddr, tunnelLAN))
	if err == nil && toLAN {
		t.traffic, err = newStreams(st.host, st.lan, tunnelLAN, 1)
	} else if err == nil {
		t.traffic, err = newStreams(st.lan, st.host, tunnelHost, 1)
	}
	if err != nil {
		return nil, errors.Join(err, t.end())
	}
	return t, nil
}

// tunnel makes one end of the tunnel.
func tunnel(ns, dev, here, there, addr string) error {
	below, err := testbed.Link(ns, dev)
	if err != nil {
		return err
	}
	mtu := below.Attrs().MTU - 50 // IPv4, UDP, VXLAN, Ethernet
	return testbed.IP(ns, fmt.Sprintf("link add %s mtu %d type vxlan id 78 local %s remote %s dstport 4789 dev %s",
		tunnelDev, mtu, here, there, dev), "addr add "+addr+"/24 dev "+tunnelDev, "link set "+tunnelDev+" up")
}

func (t *tunnelled) stop() error { return errors.Join(t.traffic.stop(), t.end()) }

// end removes the tunnel.
func (t *tunnelled) end() error {
	return errors.Join(testbed.IP(t.st.host, "link delete "+tunnelDev), testbed.IP(t.st.lan, "link delete "+tunnelDev))
}

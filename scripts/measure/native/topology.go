package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"

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

// topology is the network in which a subject is measured: a host, a middle, and a station on a
// LAN, each in its own network namespace.
type topology struct {
	host, middle, lan string   // network namespaces
	nic               string   // the netdevice on which the port on the LAN is made
	hostDev           string   // the host's netdevice
	made              []string // the namespaces made so far
}

// newTopology makes the namespaces, and the devices that the subject does not make itself.
func newTopology(prefix string, s subject) (*topology, error) {
	st := &topology{host: prefix + "h", middle: prefix + "m", lan: prefix + "l", nic: "eth1", hostDev: "sn0"}
	err := st.build(s)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network namespaces for %s: %w", s, err), st.close())
	}
	return st, nil
}

func (st *topology) build(s subject) error {
	for _, ns := range []string{st.host, st.middle, st.lan} {
		if err := netns.New(ns); err != nil {
			return err
		}
		st.made = append(st.made, ns)
		// IPv6 would send frames by itself.
		err := netns.Do(ns, func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644)
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		// The fragments of datagrams that have lost one would disturb later measurements for
		// 30 s.
		err = netns.Do(ns, func() error { return os.WriteFile("/proc/sys/net/ipv4/ipfrag_time", []byte("1"), 0o644) })
		if err != nil {
			return err
		}
		if err := testbed.Up(ns, "lo"); err != nil {
			return err
		}
	}
	switch {
	case s.what == veth:
		st.hostDev = "eth0"
		return testbed.Pair(st.host, "eth0", st.lan, "lan0")
	case s.what == bridge:
		st.hostDev = "eth0"
		return errors.Join(testbed.Pair(st.host, "eth0", st.middle, "port0"), testbed.Pair(st.middle, "eth1", st.lan, "lan0"),
			testbed.Bridge(st.middle, "br0", "port0", "eth1"))
	case s.port == "tap":
		st.nic = "br0"
		return errors.Join(testbed.Pair(st.middle, "eth1", st.lan, "lan0"), testbed.Bridge(st.middle, "br0", "eth1"))
	}
	return testbed.Pair(st.middle, "eth1", st.lan, "lan0")
}

// configure waits until the host's netdevice exists and has a carrier. Then it gives the
// stations their addresses.
func (st *topology) configure(ctx context.Context) error {
	if err := st.carrier(ctx); err != nil {
		return err
	}
	return errors.Join(
		station(st.host, st.hostDev, hostAddr, hostFlows, lanFlows, lanAddr),
		station(st.lan, "lan0", lanAddr, lanFlows, hostFlows, hostAddr),
	)
}

// carrier waits until the host's netdevice is up.
func (st *topology) carrier(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := testbed.In(st.host, func(h *netlink.Handle) error {
			l, err := h.LinkByName(st.hostDev)
			if err == nil && l.Attrs().OperState != netlink.OperUp {
				err = fmt.Errorf("%s is %s", st.hostDev, l.Attrs().OperState)
			}
			return err
		})
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the host's netdevice: %w: %w", context.Cause(ctx), err)
		}
	}
}

func (st *topology) close() error {
	var errs []error
	for _, ns := range st.made {
		errs = append(errs, netns.Delete(ns))
	}
	st.made = nil
	return errors.Join(errs...)
}

// station gives a device its address, makes all addresses of own local, and adds a route to the
// addresses of other through the neighbour via.
func station(ns, dev, addr, own, other, via string) error {
	if err := testbed.Address(ns, dev, addr+"/24"); err != nil {
		return err
	}
	return testbed.In(ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(dev)
		if err != nil {
			return err
		}
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		flows, err := netlink.ParseAddr(own)
		if err != nil {
			return err
		}
		// With an address of this prefix on the loopback device, the kernel treats the whole
		// network as local.
		if err := h.AddrAdd(lo, flows); err != nil {
			return fmt.Errorf("giving lo the addresses %s: %w", own, err)
		}
		there, err := netlink.ParseIPNet(other)
		if err != nil {
			return err
		}
		gw, err := netlink.ParseAddr(via + "/32")
		if err != nil {
			return err
		}
		if err := h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: there, Gw: gw.IP}); err != nil {
			return fmt.Errorf("route to %s: %w", other, err)
		}
		return nil
	})
}

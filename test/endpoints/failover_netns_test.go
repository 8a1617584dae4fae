package endpoints

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// TestNetnsFailover fails over from one I/O unit to another and back while a TCP connection is in
// use, with every kind of LAN interface, because of broken connections and on command. The bridge
// between the I/O units and the LAN has to learn the new port each time.
func TestNetnsFailover(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedTUN(t)
	for _, kind := range []string{"macvtap", "packet", "tap"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			hostNS, lanNS := testenv.NetNS(t), testenv.NetNS(t)
			// After cuts that last long on a busy machine, TCP would wait for minutes.
			keepTCP(t, hostNS, lanNS)
			var gateways [2]*gateway
			ports := [2]string{"lan0", "lan1"}
			for i := range gateways {
				ns, nic := testenv.NetNS(t), "eth1"
				testenv.Veth(t, ns, nic, lanNS, ports[i])
				if kind == "tap" {
					nic = "br0"
					testenv.Bridge(t, ns, nic, "eth1")
				}
				gateways[i] = w.gateway([]string{"one", "two"}[i], func(c *iounit.Config) {
					c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
						return lan.Open(kind+":"+nic, lan.Config{NetNS: ns, MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
					}
					c.LinkState = func() (lan.LinkState, error) {
						info, err := lan.LinkInfo(nic, ns)
						return info.LinkState, err
					}
				})
			}
			testenv.Bridge(t, lanNS, "br9", ports[0], ports[1])
			testenv.Address(t, lanNS, "br9", lanAddr+"/24")
			dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: hostNS, Offloads: vnet.AllOffloads})
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
			_, h, _ := w.host("alpha", func(c *host.Config) {
				c.Netdev, c.IOUnits = host.TAP(dev),
					addrs(gateways[0], gateways[1])
			})
			with(t, h, gateways[0])
			testenv.Address(t, hostNS, "sn0", "10.78.0.2/24")
			mac, err := dev.MAC()
			if err != nil {
				t.Fatal(err)
			}

			over := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for seed := uint64(0); ; seed++ {
					if err := transfer(hostNS, lanNS, lanAddr, seed, 32<<20); err != nil {
						t.Error(err)
						return
					}
					select {
					case <-over:
						return
					default:
					}
				}
			}()
			for i := range 6 {
				from, to := gateways[i%2], gateways[(i+1)%2]
				if i < 4 {
					from.cut()
				} else {
					testenv.Eventually(t, func() bool { // a handshake may take too long on a busy machine
						_, err := h.Failover(t.Context(), to.cable.addr)
						return err == nil
					}, "no fail-over to %s", to.cable.addr)
				}
				with(t, h, to)
				testenv.Eventually(t, func() bool { return testenv.Learned(t, lanNS, ports[(i+1)%2], mac) },
					"the bridge does not learn the way to %s", to.cable.addr)
				if i < 4 {
					from.plug()
				}
				before := h.Status().Traffic.Channels[0].TxFrames
				testenv.Eventually(t, func() bool {
					tr := h.Status().Traffic
					return tr != nil && tr.Channels[0].TxFrames > before+20
				}, "the stream does not go on after switch %d", i)
			}
			close(over)
			select {
			case <-ended:
			case <-time.After(testenv.Patience):
				t.Error("the stream does not end")
			}
			t.Logf("%+v", h.Status().Failovers)
		})
	}
}

// keepTCP has TCP connections of the namespaces last through long cuts: they do not end, and retransmit
// each second where the kernel can (since Linux 6.15).
func keepTCP(t *testing.T, namespaces ...string) {
	t.Helper()
	for _, ns := range namespaces {
		err := netns.Do(ns, func() error {
			late := os.WriteFile("/proc/sys/net/ipv4/tcp_rto_max_ms", []byte("1000"), 0o644)
			if errors.Is(late, os.ErrNotExist) {
				late = nil
			}
			return errors.Join(late, os.WriteFile("/proc/sys/net/ipv4/tcp_retries2", []byte("255"), 0o644))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

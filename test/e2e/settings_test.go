package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// settingsStatus is the part of a host's status about its settings.
type settingsStatus struct {
	hostStatus
	Filter *struct {
		Promisc, AllMulti bool
		Unicast           []string
		Multicast         []string
	} `json:"filter"`
	VLANs   string                                 `json:"vlans"`
	Refusal *struct{ What, Wanted, Reason string } `json:"last_refusal"`
}

// settings is a host, with functions to check its settings in its status and on the card.
type settings struct {
	*node
}

// until waits until cond is true of the host's status.
func (s settings) until(what string, cond func(*settingsStatus) bool) {
	s.t.Helper()
	var st settingsStatus
	eventually(s.t, func() bool {
		st = settingsStatus{}
		return s.statusInto(&st) && cond(&st)
	}, "%s", what)
}

func (s settings) ip(args string) {
	s.t.Helper()
	testenv.Run(s.t, s.ns, "ip", strings.Fields(args)...)
}

// port returns the name of the host's interface on the card.
func (s settings) port() string {
	s.t.Helper()
	for _, h := range s.fixture.unit.unitStatus().Hosts {
		if h.Name == s.name {
			return h.Interface
		}
	}
	s.t.Fatalf("the I/O unit knows no %s", s.name)
	return ""
}

// onCard waits until cond is true of the host's interface on the card.
func (s settings) onCard(what string, cond func(flags net.Flags, mac string) bool) {
	s.t.Helper()
	port := s.port()
	eventually(s.t, func() bool {
		a := testenv.Link(s.t, s.fixture.card, port).Attrs()
		return cond(a.Flags, a.HardwareAddr.String())
	}, "%s on the card", what)
}

// statistics returns the I/O unit's counters for the host, by `splitnic stats`.
func (s settings) statistics(flags ...string) map[string]uint64 {
	s.t.Helper()
	out := run(s.t, s.bin, append([]string{"stats", "--json", s.sock}, flags...)...)
	var got map[string]uint64
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	return got
}

// foreign is the MAC address of another station.
const foreign = "02:00:00:00:77:77"

// etherFrame returns a frame to an address, with an empty virtio_net_hdr.
func etherFrame(to string, etherType uint16) []byte {
	mac, _ := net.ParseMAC(to)
	f := make([]byte, 10+60)
	copy(f[10:], mac)
	copy(f[16:], []byte{2, 0, 0, 0, 0x66, 0x66, byte(etherType >> 8), byte(etherType)})
	return f
}

// TestRDMASettings changes the netdevice as administrators and programs do. The I/O unit has to apply
// each change to the interface on the network card, or the host has to undo it.
func TestRDMASettings(t *testing.T) {
	testenv.NeedTools(t, "tcpdump")
	rules := filepath.Join(t.TempDir(), "policy.yaml")
	err := os.WriteFile(rules, []byte(`default: {promiscuous: no, macs: ["02:*"]}
hosts:
  hosts: {promiscuous: yes, macs: ["02:*"], vlans: "1-100"}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r := newFixture(t, "macvtap", "--policy", rules)
	h := settings{r.host(t)}
	h.until("filter and VLANs told", func(s *settingsStatus) bool { return s.Filter != nil && s.VLANs == "none" })
	first := h.mac()

	t.Run("MAC address", func(t *testing.T) {
		h.ip("link set sn0 address 02:00:00:00:00:99")
		h.onCard("the MAC address", func(_ net.Flags, mac string) bool { return mac == "02:00:00:00:00:99" })
		ping(t, h.ns, addr(0), 2, 56)
		h.ip("link set sn0 address 06:00:00:00:00:99")
		h.until("the refusal", func(s *settingsStatus) bool {
			return s.Refusal != nil && s.Refusal.What == "MAC" && s.Refusal.Wanted == "06:00:00:00:00:99" &&
				h.mac() == "02:00:00:00:00:99"
		})
		ping(t, h.ns, addr(0), 2, 56)
	})
	t.Run("MTU", func(t *testing.T) {
		h.ip("link set sn0 mtu 1300")
		eventually(t, func() bool { return r.unit.unitStatus().Hosts[0].MTU == 1300 }, "the MTU at the I/O unit")
		ping(t, h.ns, addr(0), 2, 1272)
		h.ip("link set sn0 mtu 8000")
		h.until("the refusal", func(s *settingsStatus) bool {
			return s.Refusal != nil && s.Refusal.What == "MTU" && s.Refusal.Wanted == "8000" && h.mtu() == 1300
		})
		h.ip("link set sn0 mtu 1500")
		eventually(t, func() bool { return r.unit.unitStatus().Hosts[0].MTU == 1500 }, "the MTU at the I/O unit")
	})
	t.Run("down and up", func(t *testing.T) {
		h.ip("link set sn0 down")
		h.onCard("down", func(f net.Flags, _ string) bool { return f&net.FlagUp == 0 })
		h.ip("link set sn0 up")
		h.onCard("up", func(f net.Flags, _ string) bool { return f&net.FlagUp != 0 })
		h.waitCarrier(true)
		eventually(t, func() bool {
			return exec.Command("ip", "netns", "exec", h.ns, "ping", "-c1", "-W1", addr(0)).Run() == nil
		}, "an answer")
	})
	t.Run("groups", func(t *testing.T) { testGroups(t, r, h) })
	t.Run("VLAN", func(t *testing.T) { testVLANSettings(t, r, h) })
	t.Run("promiscuous", func(t *testing.T) { testPromisc(t, r, h) })
	t.Run("statistics", func(t *testing.T) {
		h.statistics("--clear")
		ping(t, h.ns, addr(0), 3, 100)
		for _, flag := range [][]string{nil, {"--clear"}} {
			if s := h.statistics(flag...); s["rx_frames"] < 3 || s["tx_frames"] < 3 || s["tx_bytes"] < 3*142 ||
				s["tx_frames"] > 50 {
				t.Errorf("%q: %v", flag, s)
			}
		}
		if s := h.statistics(); s["tx_frames"] > 2 {
			t.Errorf("cleared: %v", s)
		}
		if out := run(t, h.bin, "stats", h.sock); !strings.Contains(out, "to the LAN") {
			t.Errorf("for people:\n%s", out)
		}
	})
	t.Run("next session", func(t *testing.T) {
		h.ip("maddr add 01:00:5e:01:02:03 dev sn0")
		r.unit.stop()
		h.waitCarrier(false)
		if out, err := exec.Command(h.bin, "stats", h.sock).CombinedOutput(); err == nil ||
			!strings.Contains(string(out), "no session") {
			t.Errorf("without a session: %v\n%s", err, out)
		}
		r.startUnit()
		h.waitCarrier(true)
		h.until("the group", func(s *settingsStatus) bool {
			return s.Filter != nil && slices.Contains(s.Filter.Multicast, "01:00:5e:01:02:03") &&
				s.Netdevice.MAC == "02:00:00:00:00:99"
		})
		h.onCard("the MAC address", func(_ net.Flags, mac string) bool { return mac == "02:00:00:00:00:99" })
		ping(t, h.ns, addr(0), 2, 56)
	})
	t.Run("reset", func(t *testing.T) {
		h.ip("link set sn0 allmulticast on")
		h.until("all multicast", func(s *settingsStatus) bool { return s.Filter != nil && s.Filter.AllMulti })
		run(t, h.bin, "reset", h.sock)
		h.until("no setting left", func(s *settingsStatus) bool { return s.Filter != nil && !s.Filter.AllMulti })
		// The hello of this session requested the address, so the reset keeps it.
		if mac := h.mac(); mac != "02:00:00:00:00:99" {
			t.Errorf("the MAC address is %s", mac)
		}
	})
	t.Run("end", func(t *testing.T) {
		h.ip("link set sn0 promisc on")
		h.until("promisc", func(s *settingsStatus) bool { return s.Filter != nil && s.Filter.Promisc })
		h.stop()
		eventually(t, func() bool {
			return len(testenv.Links(t, r.card)) == 2 && testenv.Link(t, r.card, "eth1").Attrs().Promisc == 0
		}, "the card as it was: %v", testenv.Links(t, r.card))
		// A new process does not know the address that was set.
		h.start()
		h.ready()
		if mac := h.mac(); mac != first {
			t.Errorf("a new host has %s, the first had %s", mac, first)
		}
	})
}

// testGroups joins a group as mDNS does and receives a datagram to it. Frames to other groups must
// not cross the fabric.
func testGroups(t *testing.T, r *fixture, h settings) {
	group := &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353}
	var c *net.UDPConn
	err := netns.Do(h.ns, func() (err error) {
		c, err = net.ListenMulticastUDP("udp4", &net.Interface{Index: testenv.Link(t, h.ns, "sn0").Attrs().Index}, group)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h.until("the group", func(s *settingsStatus) bool {
		return s.Filter != nil && slices.Contains(s.Filter.Multicast, "01:00:5e:00:00:fb")
	})
	var from *net.UDPConn
	err = netns.Do(r.lan, func() (err error) {
		from, err = net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(addr(0))}, group)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	heard := make(chan error, 1)
	go func() {
		buf := make([]byte, 100)
		n, _, err := c.ReadFromUDP(buf)
		if err == nil && string(buf[:n]) != "hello" {
			err = fmt.Errorf("%q", buf[:n])
		}
		heard <- err
	}()
	eventually(t, func() bool {
		_, _ = from.Write([]byte("hello"))
		select {
		case err := <-heard:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			return false
		}
	}, "the datagram to the group")

	// Frames to a group that the host has not joined must not cross the fabric.
	before := h.statistics()["rx_frames"]
	for range 50 {
		testenv.SendRaw(t, r.lan, "lan0", etherFrame("01:00:5e:09:09:09", 0x88b5))
	}
	ping(t, h.ns, addr(0), 1, 56)
	if n := h.statistics()["rx_frames"] - before; n >= 50 {
		t.Errorf("%d frames came, of which 50 are for a group that the host is not in", n)
	}
}

// testVLANSettings adds VLAN devices on the netdevice, for VLANs that the policy allows and for one
// that it does not, and removes them.
func testVLANSettings(t *testing.T, r *fixture, h settings) {
	for _, end := range []struct{ ns, dev, addr string }{{r.lan, "lan0", "10.79.0.1"}, {h.ns, "sn0", "10.79.0.2"}} {
		run(t, "ip", "-n", end.ns, "link", "add", "link", end.dev, "name", "v7", "type", "vlan", "id", "7")
		testenv.Up(t, end.ns, "v7")
		testenv.Address(t, end.ns, "v7", end.addr+"/24")
	}
	h.until("VLAN 7", func(s *settingsStatus) bool { return s.VLANs == "7" })
	ping(t, h.ns, "10.79.0.1", 2, 1000)
	h.ip("link add link sn0 name v300 type vlan id 300")
	h.until("the refusal", func(s *settingsStatus) bool {
		return s.VLANs == "7" && s.Refusal != nil && s.Refusal.What == "VLANs" && s.Refusal.Wanted == "300"
	})
	h.ip("link add link sn0 name v9 type vlan id 9")
	h.until("VLAN 9 as well", func(s *settingsStatus) bool { return s.VLANs == "7,9" })
	// Move a VLAN device to another namespace, as container runtimes do.
	pod := testenv.NetNS(t)
	h.ip("link set v9 netns " + pod)
	h.ip("link delete v300")
	h.until("VLAN 9 still", func(s *settingsStatus) bool { return s.VLANs == "7,9" })
	testenv.Run(t, pod, "ip", "link", "delete", "v9")
	h.ip("link delete v7")
	h.until("no VLAN", func(s *settingsStatus) bool { return s.VLANs == "none" })
}

// testPromisc captures frames to another station on the netdevice in promiscuous mode. Without it
// they must not cross the fabric.
func testPromisc(t *testing.T, r *fixture, h settings) {
	// A veth cannot filter by address and is promiscuous from the start.
	card := testenv.Link(t, r.card, "eth1").Attrs().Promisc
	dump := testenv.Command(t, h.ns, "tcpdump", "-n", "-i", "sn0", "-c", "3", "ether", "dst", foreign)
	if err := dump.Start(); err != nil {
		t.Fatal(err)
	}
	captured := make(chan error, 1)
	go func() { captured <- dump.Wait() }()
	h.until("promiscuous", func(s *settingsStatus) bool { return s.Filter != nil && s.Filter.Promisc })
	eventually(t, func() bool {
		testenv.SendRaw(t, r.lan, "lan0", etherFrame(foreign, 0x88b5))
		select {
		case err := <-captured:
			if err != nil {
				t.Errorf("tcpdump: %v", err)
			}
			return true
		default:
			return false
		}
	}, "a capture of what is for others")
	h.until("not promiscuous", func(s *settingsStatus) bool { return s.Filter != nil && !s.Filter.Promisc })
	eventually(t, func() bool { return testenv.Link(t, r.card, "eth1").Attrs().Promisc == card },
		"the card as promiscuous as before")
	before := h.statistics()["rx_frames"]
	for range 50 {
		testenv.SendRaw(t, r.lan, "lan0", etherFrame(foreign, 0x88b5))
	}
	ping(t, h.ns, addr(0), 1, 56)
	if n := h.statistics()["rx_frames"] - before; n >= 50 {
		t.Errorf("%d frames came, of which 50 are for others", n)
	}
	h.ip("link set sn0 promisc on")
	h.until("promiscuous by hand", func(s *settingsStatus) bool {
		return s.Filter != nil && s.Filter.Promisc &&
			s.VLANs == "1-100"
	})
	h.ip("link set sn0 promisc off")
	h.until("not promiscuous", func(s *settingsStatus) bool {
		return s.Filter != nil && !s.Filter.Promisc &&
			s.VLANs == "none"
	})
}

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/testenv"
)

// put writes another policy and makes the I/O unit reload it.
func (r *fixture) put(rules string) {
	r.t.Helper()
	r.write(rules)
	run(r.t, r.bin, "reload", r.unit.sock)
}

// write writes the policy file. The I/O unit reads it at its next reload.
func (r *fixture) write(rules string) {
	r.t.Helper()
	if err := os.WriteFile(r.policy, []byte(rules), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// policedStatus is the part of the I/O unit's status about frames that a policy delays or drops.
type policedStatus struct {
	Hosts []struct {
		TxLimited uint64 `json:"tx_limited"`
		Dropped   struct {
			LinkControl uint64 `json:"link_control"`
			GroupRate   uint64 `json:"group_rate"`
		} `json:"dropped_by_policy"`
		Statistics struct {
			TxSource uint64 `json:"tx_source"`
		} `json:"statistics"`
	} `json:"hosts"`
}

// TestRDMAPolicyLinkControl sends link-control frames (pause, EAPOL, slow protocols) and a frame with
// a foreign source address, from a host under the default policy. All have to be dropped.
func TestRDMAPolicyLinkControl(t *testing.T) {
	r := newFixture(t, "macvtap")
	r.put("default: {max-sessions: 64}\n")
	h := r.host(t)
	frames := [][]byte{etherFrame("01:80:c2:00:00:01", 0x8808), etherFrame("01:80:c2:00:00:03", 0x888e),
		etherFrame(foreign, 0x8809)}
	own := testenv.Link(t, h.ns, "sn0").Attrs().HardwareAddr
	for _, f := range frames {
		copy(f[16:], own)
	}
	frames = append(frames, etherFrame("ff:ff:ff:ff:ff:ff", 0x88b5)) // with a foreign source address
	for _, f := range frames {
		testenv.SendRaw(t, h.ns, "sn0", f)
	}
	var s policedStatus
	eventually(t, func() bool {
		s = policedStatus{}
		return r.unit.statusInto(&s) && len(s.Hosts) == 1 && s.Hosts[0].Dropped.LinkControl >= 3 &&
			s.Hosts[0].Statistics.TxSource >= 1
	}, "all of it dropped: %+v", &s)
	ping(t, h.ns, addr(0), 2, 56)
}

// activeSlave returns the index of the device that bond0 uses.
func activeSlave(t *testing.T, ns string) int {
	t.Helper()
	bond, ok := testenv.Link(t, ns, "bond0").(*netlink.Bond)
	if !ok {
		t.Fatal("bond0 is not there")
	}
	return bond.ActiveSlave
}

var received = regexp.MustCompile(`, (\d+) received`)

// TestRDMABond puts two netdevices of one machine into a bond with one MAC address, which the policy
// allows them to share. Echo requests have to be answered over a fail-over and back.
func TestRDMABond(t *testing.T) {
	for _, kind := range []string{"tap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			r := newFixture(t, "packet")
			r.unit.stop()
			if kind == "tap" {
				testenv.Bridge(t, r.card, "br0", "eth1")
				r.unitFlags = append(r.unitFlags, "--lan", "tap:br0")
			}
			rules := "default: {macs: \"02:bb:00:00:00:01\", share: bond0, max-sessions: 64}\n"
			if err := os.WriteFile(r.policy, []byte(rules), 0o600); err != nil {
				t.Fatal(err)
			}
			r.startUnit()
			one, two := r.makeHost(t), r.makeHost(t, "--name", "sn1")
			two.ns = one.ns
			one.start()
			one.waitCarrier(true)
			two.start()
			eventually(t, func() bool { return carrier(t, two.ns, "sn1") }, "carrier of sn1")
			ip := func(args ...string) { t.Helper(); run(t, "ip", append([]string{"-n", one.ns}, args...)...) }
			ip("link", "add", "bond0", "type", "bond", "mode", "active-backup", "miimon", "50")
			for _, dev := range []string{"sn0", "sn1"} {
				ip("link", "set", dev, "down")
				ip("link", "set", dev, "master", "bond0")
				ip("link", "set", dev, "up")
			}
			ip("link", "set", "bond0", "up")
			testenv.Address(t, one.ns, "bond0", one.addr()+"/24")
			for _, dev := range []string{"sn0", "sn1"} {
				eventually(t, func() bool { return carrier(t, one.ns, dev) }, "carrier of %s in the bond", dev)
			}
			ping(t, one.ns, addr(0), 2, 56)
			for _, down := range []string{"sn0", "sn1"} {
				const count, interval = 30, 100 * time.Millisecond
				before := testenv.Link(t, one.ns, "bond0").Attrs().Statistics.RxPackets
				var wg sync.WaitGroup
				var out []byte
				wg.Go(func() {
					out, _ = exec.Command("ip", "netns", "exec", one.ns, "ping", "-c", strconv.Itoa(count), "-i",
						fmt.Sprint(interval.Seconds()), "-W", "2", addr(0)).CombinedOutput()
				})
				eventually(t, func() bool { return testenv.Link(t, one.ns, "bond0").Attrs().Statistics.RxPackets >= before+10 },
					"pings in the bond")
				was := activeSlave(t, one.ns)
				started := time.Now()
				ip("link", "set", down, "down")
				// The time that the kernel takes for the fail-over does not count.
				gap := time.Duration(0)
				if was == testenv.Link(t, one.ns, down).Attrs().Index {
					eventually(t, func() bool { return activeSlave(t, one.ns) != was }, "another device in use")
					gap = time.Since(started)
				}
				wg.Wait()
				m := received.FindSubmatch(out)
				if m == nil {
					t.Fatalf("no count in\n%s", out)
				}
				t.Logf("%s went down: %s of %d answers, another device after %v", down, m[1], count, gap)
				if n, err := strconv.Atoi(string(m[1])); err != nil || n < count-5-int(gap/interval) {
					t.Errorf("%s went down: %s of %d answers\n%s", down, m[1], count, out)
				}
				ip("link", "set", down, "up")
				eventually(t, func() bool { return carrier(t, one.ns, down) }, "carrier of %s again", down)
			}
		})
	}
}

// TestRDMAPolicyDefault runs two hosts under the default policy. Each has to work with the MAC
// address that is generated for it. Setting the address of the other host, of a station on the LAN,
// or a foreign one has to be refused.
func TestRDMAPolicyDefault(t *testing.T) {
	r := newFixture(t, "macvtap")
	r.put("default: {max-sessions: 64}\n")
	h, other := settings{r.host(t)}, r.host(t)
	own := h.mac()
	ping(t, h.ns, addr(0), 2, 56)
	ping(t, h.ns, other.addr(), 2, 56)
	station := testenv.Link(t, r.lan, "lan0").Attrs().HardwareAddr.String()
	for _, mac := range []string{other.mac(), station, foreign} {
		h.ip("link set sn0 address " + mac)
		h.until("MAC address "+mac+" refused", func(s *settingsStatus) bool {
			return s.Refusal != nil && s.Refusal.What == "MAC" && s.Refusal.Wanted == mac && h.mac() == own
		})
	}
	ping(t, h.ns, addr(0), 2, 56)
	ping(t, other.ns, addr(0), 2, 56)
}

// TestRDMAPolicyPackets limits the packet rate of a host and the rate of its broadcasts. Packets over
// the limit have to wait, and broadcasts over the limit have to be dropped.
func TestRDMAPolicyPackets(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.host(t)
	own := testenv.Link(t, h.ns, "sn0").Attrs().HardwareAddr
	burst := func(to string) {
		t.Helper()
		var frames [][]byte
		for range 400 {
			f := etherFrame(to, 0x88b5)
			copy(f[16:], own)
			frames = append(frames, f)
		}
		testenv.SendRaw(t, h.ns, "sn0", frames...)
	}
	status := func(what string, cond func(limited, dropped uint64) bool) {
		t.Helper()
		var s policedStatus
		eventually(t, func() bool {
			s = policedStatus{}
			return r.unit.statusInto(&s) && len(s.Hosts) == 1 && cond(s.Hosts[0].TxLimited, s.Hosts[0].Dropped.GroupRate)
		}, "%s: %+v", what, &s)
	}
	r.put("default: {max-tx-group-pps: 100}\n")
	burst("ff:ff:ff:ff:ff:ff")
	status("broadcasts dropped, and nothing waiting",
		func(limited, dropped uint64) bool { return dropped > 0 && limited == 0 })
	ping(t, h.ns, addr(0), 2, 56)
	r.put("default: {max-tx-pps: 100}\n")
	burst(foreign)
	status("packets waiting", func(limited, _ uint64) bool { return limited > 0 })
	r.put("default: {max-tx-pps: unlimited}\n")
	ping(t, h.ns, addr(0), 2, 56)
}

package endpoints

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// TestNetnsDNS lets a host find three I/O units through dnsmasq, in another network namespace.
// The zone changes, and dnsmasq stops. The host may leave an I/O unit only if the I/O unit drains
// or the session breaks, and not because of what DNS answers or of a missing answer. Another host
// starts without DNS.
func TestNetnsDNS(t *testing.T) {
	const name, addr = "_splitnic._tcp.fabric.example", "10.53.0.1"
	dnsNS, hostNS := testenv.NetNS(t), testenv.NetNS(t)
	testenv.Veth(t, dnsNS, "dns0", hostNS, "eth0")
	testenv.Address(t, dnsNS, "dns0", addr+"/24")
	testenv.Address(t, hostNS, "eth0", "10.53.0.2/24")
	dns := testenv.NewDNS(t, dnsNS, addr)
	resolver := discovery.Resolver{Path: dns.ResolvConf()}

	w := newWorld(t)
	var units [3]*gateway
	var records [3]string // in dnsmasq's configuration
	var found [3]string   // as the host knows them
	for i, order := range []string{"10,5", "20,5", "20,0"} {
		target := fmt.Sprintf("unit%d.fabric.example", i)
		units[i] = w.gateway(target)
		ip, port, err := net.SplitHostPort(units[i].cable.addr)
		if err != nil {
			t.Fatal(err)
		}
		records[i] = fmt.Sprintf("srv-host=%s,%s,%s,%s\nhost-record=%s,%s", name, target, port, order, target, ip)
		found[i] = net.JoinHostPort(target, port)
	}
	keep := t.TempDir()
	byDNS := func(c *host.Config) {
		c.IOUnits = []string{"srv:" + name}
		c.Discovery = discovery.Settings{
			Keep: keep,
			Lookup: func(ctx context.Context, name string) (a discovery.Answer, err error) {
				err = netns.Do(hostNS, func() (err error) {
					a, err = resolver.Lookup(ctx, name)
					return err
				})
				return a, err
			},
			Shortest: 20 * time.Millisecond, Longest: 100 * time.Millisecond,
			RetryMin: 20 * time.Millisecond, RetryMax: 100 * time.Millisecond,
		}
		ask := func(ctx context.Context, network, _ string) (c net.Conn, err error) {
			err = netns.Do(hostNS, func() (err error) {
				c, err = new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(addr, "53"))
				return err
			})
			if err == nil {
				// Otherwise the resolver waits for a silent server even after ctx is done.
				context.AfterFunc(ctx, func() { c.Close() })
			}
			return c, err
		}
		c.Dialer.Resolver = &net.Resolver{PreferGo: true, Dial: ask}
	}
	d, h, _ := w.host("alpha", byDNS)
	in := func(i int) {
		t.Helper()
		testenv.Eventually(t, func() bool {
			s := h.Status()
			return s.State == host.Connected && s.IOUnit.Address == found[i]
		}, "no session with %s", found[i])
	}
	knows := func(want ...string) {
		t.Helper()
		testenv.Eventually(t, func() bool { return slices.Equal(h.Status().IOUnit.Candidates, want) },
			"the host does not know %v", want)
	}
	failure := func() string { return h.Status().IOUnit.DNS[0].Error }

	testenv.Eventually(t, func() bool { return failure() != "" }, "the host says nothing of a DNS that is not there")
	dns.Serve(records[:]...)
	in(0)
	d.up(t)
	knows(found[:]...)
	units[0].both(d)

	dns.Serve(records[1:]...)
	knows(found[1:]...)
	units[0].both(d)
	units[0].unit.Drain()
	in(1)
	failedOver(t, h, uplink.ReasonDrain, 1)

	dns.Serve("srv-host=" + name) // the target is "."
	testenv.Eventually(t, func() bool { return failure() != "" }, "no error about a zone without I/O units")
	dns.Stop()
	knows(found[1:]...)
	units[1].both(d)
	if s := h.Status(); s.Sessions != 2 || d.losses() != 0 {
		t.Errorf("%d sessions, carrier lost %d times", s.Sessions, d.losses())
	}
	// Without DNS, the addresses of the I/O units are not found, either.
	units[1].unit.Drain()
	testenv.Eventually(t, func() bool { return h.Status().IOUnit.Stays != "" }, "no reason to stay")
	dns.Serve(records[2])
	in(2)
	failedOver(t, h, uplink.ReasonDrain, 2)
	units[2].both(d)
	if n := d.losses(); n != 0 {
		t.Errorf("the carrier was lost %d times", n)
	}
	knows(found[2])

	// A process that starts without DNS uses what this one has kept: the list, and the address at
	// which the I/O unit was reached.
	ip, _, err := net.SplitHostPort(units[2].cable.addr)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(keep, name+".json"))
		return err == nil && strings.Contains(string(text), `"`+ip+`"`) && !strings.Contains(string(text), "unit1")
	}, "the last answer, and %s, kept", ip)
	dns.Stop()
	d, h, _ = w.host("beta", byDNS)
	in(2)
	d.up(t)
	units[2].both(d)
	if s := h.Status().IOUnit.DNS[0]; !s.Kept || s.Error == "" || s.Units != 1 {
		t.Errorf("%+v", s)
	}
	dns.Serve(records[2])
	testenv.Eventually(t, func() bool { s := h.Status().IOUnit.DNS[0]; return !s.Kept && s.Error == "" },
		"an answer in place of what was kept")
	if s := h.Status(); s.Sessions != 1 {
		t.Errorf("%d sessions", s.Sessions)
	}
}

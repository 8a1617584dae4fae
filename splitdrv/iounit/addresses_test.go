package iounit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// comes has a host that is trusted under this name request the address wish. The zero address
// requests any.
func comes(u *Unit, name, key string, wish protocol.MAC) (*attachment, protocol.MAC, error) {
	id := session.Identity{Name: name}
	a := &attachment{
		host: host{
			key: hostKey(id, name), ownKey: key + "/" + name, peer: func() session.Identity { return id },
			policy: u.policy.Load().For(key, name), log: u.cfg.Log, hello: session.Hello{Name: name, MAC: wish},
			since: time.Now(),
		},
	}
	if old := u.hosts[a.key]; old != nil {
		delete(u.addresses.of, &old.host)
	}
	u.addresses.setShare(&a.host, a.policy.Share)
	u.hosts[a.key] = a
	mac, err := u.addresses.choose(&a.host)
	return a, mac, err
}

// TestOwnAddressOnly has hosts without a policy of their own request addresses. They must get
// only their own.
func TestOwnAddressOnly(t *testing.T) {
	u := newUnit(t, Config{})
	alpha, mac, err := comes(u, "alpha", "k1", protocol.MAC{})
	if err != nil || mac != macOf("k1/alpha") {
		t.Fatalf("%v, %v", mac, err)
	}
	u.leave(alpha)
	for what, wish := range map[string]protocol.MAC{"a gateway's": machine, "an absent host's": mac, "the card's": card} {
		if _, got, err := comes(u, "mallory", "k2", wish); !errors.Is(err, errDenied) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	if _, got, err := comes(u, "beta", "k3", macOf("k3/beta")); err != nil || got != macOf("k3/beta") {
		t.Errorf("its own: %v, %v", got, err)
	}
	// A host with a new key keeps its address.
	alpha, got, err := comes(u, "alpha", "k4", mac)
	if err != nil || got != mac {
		t.Errorf("with another key: %v, %v", got, err)
	}
	u.leave(alpha)
	// The number of remembered addresses is a multiple of the largest number of hosts.
	for i := range grantsOfHost * u.cfg.MaxHosts {
		a, _, err := comes(u, fmt.Sprint("host", i), "k", protocol.MAC{})
		if err != nil {
			t.Fatal(err)
		}
		u.leave(a)
	}
	if n := len(u.addresses.granted); n != grantsOfHost*u.cfg.MaxHosts {
		t.Errorf("%d addresses are remembered", n)
	}
	if _, got, err := comes(u, "alpha", "k5", mac); !errors.Is(err, errDenied) {
		t.Errorf("one that is forgotten: %v, %v", got, err)
	}
}

// TestReservedAddresses has hosts request addresses that the policy reserves for other hosts. They
// must be refused.
func TestReservedAddresses(t *testing.T) {
	u := newUnit(t, Config{Policy: parsed(t, `
default: {macs: any}
hosts:
  gateway: {macs: "02:aa:00:00:00:01"}
  farm: {macs: [own, "02:aa:*"]}
  open: {}
  closed: {macs: own}
`)})
	gateway, inFarm := protocol.MAC{2, 0xaa, 0, 0, 0, 1}, protocol.MAC{2, 0xaa, 0, 0, 0, 2}
	for _, tc := range []struct {
		host string
		mac  protocol.MAC
		want string
	}{
		{"open", gateway, "keeps MAC address"}, {"open", inFarm, "keeps MAC address"},
		{"nobody", inFarm, "keeps MAC address"},
		{"farm", gateway, "keeps MAC address"}, {"gateway", inFarm, "keeps MAC address"},
		{"closed", machine, "not among those"},
		{"gateway", machine, "`macs`"}, {"open", machine, ""}, {"farm", inFarm, ""}, {"gateway", gateway, ""},
	} {
		if _, got, err := comes(u, tc.host, tc.host, tc.mac); (err == nil) != (tc.want == "") ||
			err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s asks for %v: %v, %v", tc.host, tc.mac, got, err)
		}
	}
	for host, want := range map[string]protocol.MAC{"gateway": gateway, "farm": macOf("farm/farm"),
		"open": macOf("open/open"), "closed": macOf("closed/closed")} {
		if _, got, err := comes(u, host, host, protocol.MAC{}); err != nil || got != want {
			t.Errorf("%s asks for none: %v, %v", host, got, err)
		}
	}
	// The same for frames, and for addresses that are requested later.
	c := newClient(t, u.policy.Load().For("", "open"))
	judge := func(m protocol.MAC, want verdict) {
		t.Helper()
		f := frame(broadcast, m, 60)
		if got := c.s.rules.Load().toLAN(f, len(f), new(protocol.MACSet)); got != want {
			t.Errorf("from %v: verdict %d, want %d", m, got, want)
		}
	}
	judge(machine, pass)
	judge(inFarm, source)
	c.mac(gateway, protocol.CfgDenied)
	c.mac(machine, protocol.CfgOK)
	if err := c.s.govern(parsed(t, `{default: {macs: any}, hosts: {new: {macs: "02:07:*"}}}`).For("", "open"),
		protocol.ModeImm); !errors.Is(err, errPolicy) {
		t.Errorf("an address that is kept for another one from now on: %v", err)
	}
}

// TestSharedAddresses has two hosts of a group use the same address at the same time.
func TestSharedAddresses(t *testing.T) {
	text := `hosts:
  left: {macs: "02:bb:00:00:00:01", share: bond}
  right: {macs: "02:bb:00:00:00:01", share: bond}
  third: {macs: [own, "02:bb:00:00:00:01"]}
`
	u := newUnit(t, Config{Policy: parsed(t, text)})
	bond := protocol.MAC{2, 0xbb, 0, 0, 0, 1}
	left, mac, err := comes(u, "left", "k1", protocol.MAC{})
	if err != nil || mac != bond || u.addresses.shared(&left.host, bond) {
		t.Fatalf("%v, %v", mac, err)
	}
	right, mac, err := comes(u, "right", "k2", protocol.MAC{})
	if err != nil || mac != bond || !u.addresses.shared(&left.host, bond) || !u.addresses.shared(&right.host, bond) {
		t.Fatalf("%v, %v", mac, err)
	}
	if third, mac, err := comes(u, "third", "k3", bond); !errors.Is(err, errDenied) || u.addresses.shared(&third.host, macOf("k3/third")) {
		t.Errorf("who does not share: %v, %v", mac, err)
	}
	delete(u.hosts, "third/third")
	// An address that another host has, too, must not be announced: only the hosts' own frames
	// show where it is.
	c := newClient(t, hostWith("all"))
	c.s.tells.send(other, 0)
	c.s.tells.send(machine, 0)
	if n := len(c.port.announced); n != 1 {
		t.Errorf("%d addresses are announced", n)
	}
	// The address is not shared any more: the later session must end.
	var gone []string
	for _, a := range []*attachment{left, right} {
		s := newServices(&a.host, &u.common, c.port, bond, 1500, 1500)
		s.conn = c.s.conn
		a.cancel = func(err error) { gone = append(gone, a.hello.Name+": "+err.Error()) }
		a.begin(s, protocol.ModeImm)
	}
	right.since = left.since.Add(time.Second)
	if n := u.SetPolicy(parsed(t, text)); n != 0 {
		t.Errorf("%d sessions end by the same policy: %q", n, gone)
	}
	if n := u.SetPolicy(parsed(t, strings.Replace(text, "share: bond", "share: other", 1))); n != 1 || len(gone) != 1 ||
		!strings.Contains(gone[0], "right: the policy has changed: MAC address 02:bb:00:00:00:01 is that of host left") {
		t.Errorf("%d sessions end: %q", n, gone)
	}
	if taken := u.addresses.all(); !slices.Contains(taken, bond) {
		t.Errorf("addresses %v", taken)
	}
}

// TestUnbound changes the policy to require bound sessions. Sessions that are not bound must end.
func TestUnbound(t *testing.T) {
	h := *policy.Default().For("", "")
	h.RequireBind = true
	for bound, ends := range map[bool]bool{true: false, false: true} {
		c := newClient(t, policy.Default().For("", ""))
		c.s.host.bound = bound
		if err := c.s.govern(&h, protocol.ModeImm); errors.Is(err, errPolicy) != ends {
			t.Errorf("bound %t: %v", bound, err)
		}
	}
}

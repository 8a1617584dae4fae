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
func comes(u *Unit, name string, wish protocol.MAC) (*attachment, protocol.MAC, error) {
	return comesAs(u, session.Identity{Name: name}, name, wish)
}

// comesAs is comes for a host that has another name than that under which it is trusted.
func comesAs(u *Unit, id session.Identity, name string, wish protocol.MAC) (*attachment, protocol.MAC, error) {
	a := &attachment{
		host: host{
			key: hostKey(id, name), peer: func() session.Identity { return id },
			policy: u.policy.Load().For(id.Fingerprint.String(), id.Name), log: u.cfg.Log,
			hello: session.Hello{Name: name, MAC: wish}, since: time.Now(),
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

// ownOf returns the address of a host that is trusted under its name.
func ownOf(name string) protocol.MAC { return ownAddresses(session.Identity{Name: name}, name)[0] }

// TestOwnAddressOnly has hosts without a policy of their own request addresses. They must get
// only their own.
func TestOwnAddressOnly(t *testing.T) {
	u := newUnit(t, Config{})
	alpha, mac, err := comes(u, "alpha", protocol.MAC{})
	if err != nil || mac != ownOf("alpha") {
		t.Fatalf("%v, %v", mac, err)
	}
	u.leave(alpha)
	for what, wish := range map[string]protocol.MAC{"a gateway's": machine, "an absent host's": mac, "the card's": card} {
		if _, got, err := comes(u, "mallory", wish); !errors.Is(err, errDenied) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	if _, got, err := comes(u, "beta", ownOf("beta")); err != nil || got != ownOf("beta") {
		t.Errorf("its own: %v, %v", got, err)
	}
}

// TestOwnAddressesOfOneKey has netdevices with one key whose names give them the same address. Each
// must get one of its own, and keep it with an I/O unit that does not know of the others.
func TestOwnAddressesOfOneKey(t *testing.T) {
	id := session.Identity{Fingerprint: session.Fingerprint{1}}
	names := map[protocol.MAC]string{}
	one, other := "", ""
	for i := 0; one == ""; i++ {
		if i > 1<<16 {
			t.Fatal("no two names give the same address")
		}
		other = fmt.Sprint("card", i)
		mac := ownAddresses(id, other)[0]
		one, names[mac] = names[mac], other
	}
	u := newUnit(t, Config{})
	_, first, err := comesAs(u, id, one, protocol.MAC{})
	if err != nil {
		t.Fatal(err)
	}
	_, second, err := comesAs(u, id, other, protocol.MAC{})
	if err != nil || second == first {
		t.Errorf("%s has %v, %s has %v, %v", one, first, other, second, err)
	}
	if _, got, err := comesAs(newUnit(t, Config{}), id, other, second); err != nil || got != second {
		t.Errorf("elsewhere: %v, %v, not %v", got, err, second)
	}
}

// TestNamesAreNotTold has hosts request addresses of others. The refusal must say whose an address
// is by the name that the I/O unit's list gives it, and never by the name that the host has chosen.
func TestNamesAreNotTold(t *testing.T) {
	named, unnamed := session.Identity{Name: "gateway"}, session.Identity{Fingerprint: session.Fingerprint{1}}
	for _, tc := range []struct {
		owner session.Identity
		want  string
	}{
		{named, "is that of host gateway"}, {unnamed, "is that of another host"},
		{session.Identity{Name: "nobody", Insecure: true}, "is that of another host"},
	} {
		u := newUnit(t, Config{Policy: parsed(t, "default: {macs: any}")})
		owner, _, err := comesAs(u, tc.owner, "chosen", machine)
		if err != nil {
			t.Fatal(err)
		}
		asking, _, err := comesAs(u, session.Identity{Fingerprint: session.Fingerprint{2}}, "other", machine)
		_, refused := u.addresses.claimEach(&asking.host, asking.own, []protocol.MAC{machine}, 1,
			func(protocol.MAC) error { return nil }, func() {})
		if len(refused) != 1 {
			t.Fatalf("%+v", refused)
		}
		u.addresses.of[&asking.host] = claimed{mac: machine}
		for _, err := range []error{err, refused[0].why, u.addresses.disputed(&asking.host, []*host{&owner.host})} {
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "chosen") {
				t.Errorf("of %v: %v", tc.owner, err)
			}
		}
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
		if _, got, err := comes(u, tc.host, tc.mac); (err == nil) != (tc.want == "") ||
			err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s asks for %v: %v, %v", tc.host, tc.mac, got, err)
		}
	}
	for host, want := range map[string]protocol.MAC{"gateway": gateway, "farm": ownOf("farm"),
		"open": ownOf("open"), "closed": ownOf("closed")} {
		if _, got, err := comes(u, host, protocol.MAC{}); err != nil || got != want {
			t.Errorf("%s asks for none: %v, %v", host, got, err)
		}
	}
	// The same for frames, and for addresses that are requested later.
	c := newClient(t, u.policy.Load().For("", "open"))
	if !c.passes(frame(broadcast, machine, 60)) || c.passes(frame(broadcast, inFarm, 60)) {
		t.Error("not the frames from addresses that the host may have pass")
	}
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
	left, mac, err := comes(u, "left", protocol.MAC{})
	if err != nil || mac != bond || u.addresses.shared(&left.host, bond) {
		t.Fatalf("%v, %v", mac, err)
	}
	right, mac, err := comes(u, "right", protocol.MAC{})
	if err != nil || mac != bond || !u.addresses.shared(&left.host, bond) || !u.addresses.shared(&right.host, bond) {
		t.Fatalf("%v, %v", mac, err)
	}
	if third, mac, err := comes(u, "third", bond); !errors.Is(err, errDenied) || u.addresses.shared(&third.host, ownOf("third")) {
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

package iounit

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// wants requests a filter with these further addresses, and returns the ones in force.
func (c *client) wants(status protocol.CfgStatus, macs ...protocol.MAC) protocol.ReceiveFilter {
	c.t.Helper()
	data := c.ask("addresses", protocol.CfgFilter,
		protocol.AppendReceiveFilter(nil, protocol.ReceiveFilter{AllMulti: true, Unicast: macs}), status)
	if status != protocol.CfgOK {
		data = c.ask("query", protocol.CfgFilter, nil, protocol.CfgOK)
	}
	f, err := protocol.DecodeReceiveFilter(data)
	if err != nil {
		c.t.Fatal(err)
	}
	return f
}

// reason returns why the last filter was refused, or a part of it.
func (c *client) reason() string {
	c.t.Helper()
	why, err := protocol.DecodeRefusal(c.ask("reason", protocol.CfgRefusal,
		protocol.AppendSubject(nil, protocol.CfgFilter), protocol.CfgOK))
	if err != nil {
		c.t.Error(err)
	}
	return why
}

// retries reports whether the host is told to repeat its request.
func (c *client) retries() bool {
	select {
	case <-c.s.retry:
		return true
	default:
		return false
	}
}

func further(i int) protocol.MAC { return protocol.MAC{2, 9, 0, 0, byte(i >> 8), byte(i)} }

func someFurther(from, to int) (macs []protocol.MAC) {
	for i := from; i < to; i++ {
		macs = append(macs, further(i))
	}
	return macs
}

// TestFilterEachAlone requests further addresses of which some cannot be had, and expects the others.
func TestFilterEachAlone(t *testing.T) {
	c := newClient(t, hostWith("all", "02:*"))
	foreign := protocol.MAC{6, 0, 0, 0, 0, 1}
	f := c.wants(protocol.CfgOK, further(1), other, foreign, further(2), card, further(1))
	if want := someFurther(1, 3); !slices.Equal(f.Unicast, want) || len(c.port.unicast) != 2 {
		t.Errorf("in force are %v, at the port %v", f.Unicast, c.port.unicast)
	}
	for _, m := range someFurther(1, 3) {
		if !c.unit.addresses.taken.Load().Has(m) {
			t.Errorf("%v was not claimed", m)
		}
	}
	why := c.reason()
	for _, word := range []string{other.String() + " is that of host beta", "`share`", foreign.String(), "`macs`"} {
		if !strings.Contains(why, word) {
			t.Errorf("reason %q has no %q", why, word)
		}
	}
	// A port that fails changes nothing.
	c.port.fail["SetUnicast"] = unix.ENOMEM
	if f := c.wants(protocol.CfgFailed, further(1), further(2), further(3)); len(f.Unicast) != 2 || c.reason() != "" {
		t.Errorf("in force are %v after a failure, reason %q", f.Unicast, c.reason())
	}
	// Without one that can be had, the request is refused, and nothing changes.
	if f := c.wants(protocol.CfgDenied, other); len(f.Unicast) != 2 || !strings.Contains(c.reason(), "host beta") {
		t.Errorf("in force are %v, reason %q", f.Unicast, c.reason())
	}
	if f := c.wants(protocol.CfgOK); len(f.Unicast) != 0 || c.reason() != "" {
		t.Errorf("in force are %v, reason %q", f.Unicast, c.reason())
	}
	if c.unit.addresses.taken.Load().Has(further(1)) {
		t.Error("the address is still claimed")
	}
}

// TestFilterBeyondBound requests more further addresses than the host may have.
func TestFilterBeyondBound(t *testing.T) {
	for name, tc := range map[string]struct {
		host *policy.Host
		most int
	}{
		"default": {&policy.Host{AnyMAC: true}, policy.DefaultMACs},
		"set":     {&policy.Host{AnyMAC: true, MaxMACs: 5}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, tc.host)
			granted := someFurther(10, 10+tc.most)
			if f := c.wants(protocol.CfgOK, granted...); !slices.Equal(f.Unicast, granted) || c.reason() != "" {
				t.Fatalf("%d of %d in force, reason %q", len(f.Unicast), tc.most, c.reason())
			}
			// What was granted stays, wherever it is in the list.
			f := c.wants(protocol.CfgOK, someFurther(8, 10+tc.most+3)...)
			if !slices.Equal(f.Unicast, granted) || f.Promisc || c.unit.addresses.taken.Load().Has(further(8)) {
				t.Errorf("in force are %v", f.Unicast)
			}
			why := c.reason()
			if !strings.Contains(why, "5 of ") || !strings.Contains(why, "`max-macs`") ||
				!strings.Contains(why, further(8).String()) || len(why) > 250 {
				t.Errorf("reason %q", why)
			}
			// On a bridge's port, and with the permission, everything is received.
			c.port.floods = true
			if f := c.wants(protocol.CfgOK, someFurther(8, 10+tc.most+3)...); !f.Promisc || len(f.Unicast) != tc.most ||
				!c.port.promisc || c.reason() != "" {
				t.Errorf("at a bridge: promiscuous %t, reason %q", f.Promisc, c.reason())
			}
			if f := c.wants(protocol.CfgOK, granted...); f.Promisc || c.port.promisc {
				t.Error("still promiscuous")
			}
		})
	}
}

// TestFilterBoundChanges lowers and raises the bound under a host's addresses.
func TestFilterBoundChanges(t *testing.T) {
	c := newClient(t, &policy.Host{AnyMAC: true, VLANs: protocol.AllVLANs(), Modes: protocol.Modes(), MaxMACs: 5})
	c.wants(protocol.CfgOK, someFurther(0, 6)...)
	govern := func(most int) {
		t.Helper()
		may := *c.s.policy
		may.MaxMACs = most
		if err := c.s.govern(&may, protocol.ModeImm); err != nil {
			t.Fatal(err)
		}
	}
	govern(3)
	if f := c.s.now.filter; !slices.Equal(f.Unicast, someFurther(0, 3)) || len(c.port.unicast) != 3 ||
		c.unit.addresses.taken.Load().Has(further(3)) || !c.retries() {
		t.Errorf("in force are %v, at the port %v", f.Unicast, c.port.unicast)
	}
	govern(6)
	if !c.retries() {
		t.Error("the host is not told that the bound was raised")
	}
	if f := c.wants(protocol.CfgOK, someFurther(0, 6)...); len(f.Unicast) != 6 {
		t.Errorf("in force are %v", f.Unicast)
	}
	govern(7)
	if c.retries() {
		t.Error("the host is told, and nothing was refused")
	}
}

// TestFilterFreed refuses a host an address that another host has, and expects the host to be told when
// it is free, and only then.
func TestFilterFreed(t *testing.T) {
	virtual := protocol.MAC{0, 0, 0x5e, 0, 1, 0x33}
	for name, free := range map[string]func(c *client, b *host) error{
		"left":    func(c *client, b *host) error { c.unit.addresses.leave(b); return nil },
		"gave up": func(c *client, b *host) error { return c.unit.addresses.claim(b, other, nil) },
		"replaced": func(c *client, b *host) error {
			return c.unit.addresses.claim(b, other, []protocol.MAC{further(2)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, &policy.Host{AnyMAC: true})
			b := &c.unit.hosts["b"].host
			if err := c.unit.addresses.claim(b, other, []protocol.MAC{virtual, further(1)}); err != nil {
				t.Fatal(err)
			}
			c.wants(protocol.CfgDenied, virtual)
			c.wants(protocol.CfgOK) // as a host does then
			if err := c.unit.addresses.claim(b, other, []protocol.MAC{virtual}); err != nil || c.retries() {
				t.Fatalf("told of another address: %v", err)
			}
			if err := free(c, b); err != nil || !c.retries() {
				t.Fatalf("not told: %v", err)
			}
			if f := c.wants(protocol.CfgOK, virtual); !slices.Equal(f.Unicast, []protocol.MAC{virtual}) || c.reason() != "" {
				t.Errorf("in force are %v, reason %q", f.Unicast, c.reason())
			}
			// It waits no longer.
			if err := c.unit.addresses.claim(b, other, []protocol.MAC{further(5)}); err != nil {
				t.Fatal(err)
			}
			c.unit.addresses.leave(b)
			if c.retries() {
				t.Error("told although nothing is refused")
			}
		})
	}
}

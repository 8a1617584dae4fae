package iounit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

func TestAnnouncement(t *testing.T) {
	mac := protocol.MAC{2, 0xaa, 0xbb, 0xcc, 0xdd, 0xee}
	const head, body = "ffffffffffff" + "02aabbccddee", "8035" + "00010800" + "0604" + "0003" + "02aabbccddee" +
		"00000000" + "02aabbccddee" + "00000000"
	for _, c := range []struct {
		vlan uint16
		want string
		n    int
	}{{0, head + body, 60}, {5, head + "81000005" + body, 60}, {4094, head + "81000ffe" + body, 60}} {
		f := announcement(mac, c.vlan)
		if err := vnet.Check(f, 1500); err != nil {
			t.Errorf("VLAN %d: %v", c.vlan, err)
		}
		eth := f[vnet.HdrLen:]
		if got := hex.EncodeToString(eth); got[:len(c.want)] != c.want || len(eth) != c.n ||
			bytes.Count(eth[len(c.want)/2:], []byte{0}) != c.n-len(c.want)/2 {
			t.Errorf("VLAN %d: %s", c.vlan, got)
		}
		q := &queue{}
		r := &guard.Rules{MAC: mac, Host: &policy.Host{VLANs: protocol.AllVLANs()}, MTU: 1500}
		if err := write(ruled(q, guard.Sampler{}, r), f); err != nil || len(q.Out) != 1 {
			t.Errorf("VLAN %d: the host itself may not send this: %v", c.vlan, err)
		}
	}
}

// announcer returns a new announcer for the host.
func (c *client) announcer() *announcer {
	return newAnnouncer(c.s.host, c.unit.addresses, c.port, c.s.guard, &c.s.lines)
}

// TestAnnouncer checks the announcements of a host. There must be one at once, and then more after
// growing pauses, for all its addresses and few VLANs, again when the host is set up again, and
// none after the end of the session.
func TestAnnouncer(t *testing.T) {
	c := newClient(t, &policy.Host{AnyMAC: true})
	synctest.Test(t, func(t *testing.T) {
		done, ended := make(chan struct{}), make(chan struct{})
		c.s.tells = c.announcer() // its channel must be created in the bubble
		a := c.s.tells
		go func() {
			defer close(ended)
			a.run(done)
		}()
		a.now()
		heard := func(want int) {
			t.Helper()
			synctest.Wait()
			c.port.announcing.Lock()
			defer c.port.announcing.Unlock()
			if n := len(c.port.announced); n != want || a.frames.Load() != uint64(want) {
				t.Fatalf("%d frames, and %d counted, want %d", n, a.frames.Load(), want)
			}
		}
		heard(1)
		for i, pause := range announcePauses {
			time.Sleep(pause - time.Millisecond)
			heard(1 + i)
			time.Sleep(time.Millisecond)
			heard(2 + i)
		}
		time.Sleep(time.Minute)
		n := 1 + len(announcePauses)
		heard(n)

		r := *c.s.guard.Rules()
		r.Further = protocol.NewMACSet([]protocol.MAC{machine})
		r.Receive.Add(7)
		c.s.guard.SetRules(&r)
		c.port.announcing.Lock()
		c.port.fail["Announce"] = errors.New("the port is down")
		c.port.announcing.Unlock()
		a.now()
		heard(n + 2) // of three, one failed
		time.Sleep(announcePauses[0])
		heard(n + 5)
		tagged := r
		tagged.Host = &policy.Host{AnyMAC: true, TaggedOnly: true}
		c.s.guard.SetRules(&tagged)
		time.Sleep(announcePauses[1])
		heard(n + 6) // only in its VLAN
		close(done)
		<-ended
		time.Sleep(time.Minute)
		heard(n + 6)
	})
}

// TestAnnouncementsAreBounded has a host request many times to be set up. The announcements must
// be rate-limited, and the last request must be announced.
func TestAnnouncementsAreBounded(t *testing.T) {
	c := newClient(t, &policy.Host{AnyMAC: true})
	synctest.Test(t, func(t *testing.T) {
		done, ended := make(chan struct{}), make(chan struct{})
		c.s.tells = c.announcer() // its channel must be created in the bubble
		go func() {
			defer close(ended)
			c.s.tells.run(done)
		}()
		heard := func() int {
			c.port.announcing.Lock()
			defer c.port.announcing.Unlock()
			return len(c.port.announced)
		}
		begun := time.Now()
		for i := range 2000 {
			c.ask("link state", protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: i%2 == 1}),
				protocol.CfgOK)
			time.Sleep(10 * time.Millisecond)
		}
		before, most := heard(), roundBurst+int(roundRate*time.Since(begun).Seconds())
		if before == 0 || before > most {
			t.Errorf("%d announcements of a host that was set up 1000 times, at most %d", before, most)
		}
		time.Sleep(time.Minute)
		if heard() == before {
			t.Error("the last word of the host was not passed on")
		}
		close(done)
		<-ended
	})
}

// TestStandBy checks that the port is down until the host requests it up, and that the host is
// announced then.
func TestStandBy(t *testing.T) {
	c := newClient(t, &policy.Host{AnyMAC: true})
	if err := c.s.standBy(); err != nil {
		t.Fatal(err)
	}
	if c.port.up || len(c.port.announced) != 0 {
		t.Errorf("up %t, %d announcements", c.port.up, len(c.port.announced))
	}
	c.ask("up", protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: true}), protocol.CfgOK)
	if !c.port.up || len(c.port.announced) != 1 {
		t.Errorf("up %t, %d announcements", c.port.up, len(c.port.announced))
	}
	c.ask("reset", protocol.CfgReset, nil, protocol.CfgOK)
	if !c.port.up {
		t.Error("a reset has set the port down")
	}
}

// TestAnnouncedWhenHere checks that a host is announced when it reports that it is up, and not
// because it has a session, nor while its netdevice is down.
func TestAnnouncedWhenHere(t *testing.T) {
	c := newClient(t, &policy.Host{AnyMAC: true})
	if !c.port.up {
		t.Fatal("the port of a session that is not on standby is down")
	}
	link := func(up bool) func() {
		return func() {
			c.ask("link state", protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: up}), protocol.CfgOK)
		}
	}
	for i, step := range []struct {
		what string
		do   func()
		want int // number of announcements
	}{
		{"a session", func() {}, 0},
		{"another address", func() { c.mac(machine, protocol.CfgOK) }, 0},
		{"a question", func() { c.ask("link state", protocol.CfgLinkState, nil, protocol.CfgOK) }, 0},
		{"down", link(false), 0},
		{"another address of one that is down", func() { c.mac(own, protocol.CfgOK) }, 0},
		{"up", link(true), 1},
		{"up as before", link(true), 1},
		{"another address of one that is up", func() { c.mac(machine, protocol.CfgOK) }, 2},
		{"down again", link(false), 2},
		{"up again", link(true), 3},
	} {
		step.do()
		if n := len(c.port.announced); n != step.want {
			t.Errorf("%d, %s: %d announcements, want %d", i, step.what, n, step.want)
		}
	}
	c = newClient(t, &policy.Host{AnyMAC: true})
	link(true)() // the port is up already
	if n := len(c.port.announced); n != 1 {
		t.Errorf("the first word of a host: %d announcements", n)
	}
	c = newClient(t, &policy.Host{AnyMAC: true})
	c.port.up, c.s.now.up = false, false
	c.port.fail["SetUp"] = errors.New("the port is gone")
	c.ask("up", protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: true}), protocol.CfgFailed)
	if n := len(c.port.announced); n != 0 {
		t.Errorf("a port that cannot be set up: %d announcements", n)
	}
}

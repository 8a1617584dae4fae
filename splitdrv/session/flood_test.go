package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"
)

// flood makes connections that say nothing, each from the next /64 of a network.
type flood struct {
	from netHalf // of the first one
	size int     // networks
	next int
}

// netHalf is the first half of an IPv6 address.
type netHalf uint64

// a52 is a /52 of IPv6 addresses: 4096 networks of machines.
const a52 = netHalf(0x2001_0db8_0001_7000)

func (h netHalf) conn() *Conn {
	ip := make(net.IP, net.IPv6len)
	binary.BigEndian.PutUint64(ip, uint64(h))
	ip[15] = 7
	return &Conn{
		security: new(Security), raw: from{addr: &net.TCPAddr{IP: ip, Port: 1}},
		deadline: time.Now().Add(time.Hour), done: make(chan struct{}),
	}
}

func (f *flood) conn() *Conn {
	f.next++
	return (f.from + netHalf(f.next%f.size)).conn()
}

// TestFloodOfSources has 10,000 connections come from all networks of a /52 while
// each of the others is on its way to its hello, which takes 100 ms.
func TestFloodOfSources(t *testing.T) {
	const rate, hosts = 10_000, 33
	silent := &flood{from: a52 + hosts, size: 4096 - hosts}
	// Hosts come once each.
	for name, host := range map[string]func(i int) *Conn{
		"IPv4":                          func(i int) *Conn { return connFrom(fmt.Sprintf("10.0.0.%d", i+1)) },
		"another /48":                   func(i int) *Conn { return netHalf(0x2001_0db8_0002_7000 + i).conn() },
		"another /56 of the same /48":   func(i int) *Conn { return netHalf(0x2001_0db8_0001_8000 + i).conn() },
		"the same /56, and acquainted":  func(i int) *Conn { return (a52 + netHalf(i)).conn() },
		"a link's, and it is the first": func(i int) *Conn { return connFrom(fmt.Sprintf("fe80::%d", i)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newCrowd(DefaultMaxHandshakes)
			for range rate {
				w.enter(silent.conn())
			}
			for i := range hosts {
				c := host(i)
				if name == "the same /56, and acquainted" {
					w.meets(c)
				}
				w.enter(c)
				for range rate / 10 {
					if out, _ := w.enter(silent.conn()); out == c {
						t.Fatalf("host %d has to go", i)
					}
				}
				w.leave(c)
			}
			if n := w.count(); n >= DefaultMaxHandshakes+1 || len(w.networks) > 3*n {
				t.Errorf("%d connections, %d networks", n, len(w.networks))
			}
		})
	}
}

// TestFloodFromEverywhere has silent connections come from as many /48 as there are.
// Machines that are acquainted keep three quarters of the places, all at once, and
// strangers the others.
func TestFloodFromEverywhere(t *testing.T) {
	w := newCrowd(DefaultMaxHandshakes)
	const kept = DefaultMaxHandshakes * 3 / 4
	stranger := 0
	floods := func() {
		for range 1000 {
			stranger++
			w.enter(netHalf(0x2400_0000_0000_0000 + stranger<<16).conn())
		}
	}
	var hosts []*Conn
	for i := range kept {
		c := connFrom(fmt.Sprintf("10.0.%d.1", i))
		w.meets(c)
		hosts = append(hosts, c)
	}
	floods()
	for _, c := range hosts {
		if out, err := w.enter(c); slices.Contains(hosts, out) || !errors.Is(err, ErrCrowded) {
			t.Fatalf("a host takes the place of %v: %v", out, err)
		}
	}
	floods()
	if n := w.count() - w.strange; n != kept {
		t.Errorf("%d of %d hosts are left", n, kept)
	}
	// Those that are acquainted do not keep strangers out either.
	for i := range 2 * kept {
		c := connFrom(fmt.Sprintf("10.1.%d.1", i))
		w.meets(c)
		w.enter(c)
	}
	if w.strange != DefaultMaxHandshakes-kept {
		t.Errorf("%d strangers are left", w.strange)
	}
}

// TestCrowdWithoutAddresses has connections that come from no address: they are those
// of one machine.
func TestCrowdWithoutAddresses(t *testing.T) {
	w := newCrowd(12)
	for i := range 4 {
		c := &Conn{security: new(Security), raw: from{addr: &net.UnixAddr{}}, done: make(chan struct{})}
		if out, err := w.enter(c); (i < 3) != (out == nil) || out != nil && !errors.Is(err, ErrCrowdedSource) {
			t.Errorf("connection %d takes the place of %v: %v", i, out, err)
		}
	}
}

// TestAcquaintances forgets machines that have not been there for longest, and does
// not get acquainted with those who prove nothing.
func TestAcquaintances(t *testing.T) {
	w := newCrowd(4)
	first, second := connFrom("192.0.2.1"), connFrom("192.0.2.2")
	w.meets(first)
	w.meets(second)
	for i := range maxAcquainted - 1 {
		if i == 100 {
			w.meets(first) // again
		}
		w.meets(netHalf(i + 1).conn())
	}
	if !w.acquainted(sourceOf(first.RemoteAddr())) || w.acquainted(sourceOf(second.RemoteAddr())) ||
		len(w.acquaint) != maxAcquainted {
		t.Errorf("%d are acquainted", len(w.acquaint))
	}
	anybody := connFrom("192.0.2.3")
	anybody.verdict.Store(&verdict{id: Identity{Insecure: true}})
	w.meets(anybody)
	w.meets(&Conn{raw: from{addr: &net.UnixAddr{}}})
	if w.acquainted(sourceOf(anybody.RemoteAddr())) || w.acquainted(source{}) {
		t.Error("somebody who has not been authenticated is acquainted")
	}
}

// TestTurnsOfNetworks has handshakes wait from all over a /52, from another network
// and from a machine that is acquainted: each of these has its turn at once.
func TestTurnsOfNetworks(t *testing.T) {
	now := time.Now()
	turns := newTurns()
	turns.work = newAllowance(1e6, 1e6, now)
	turns.busy = true
	names := map[*waiter]string{}
	add := func(name string, c *Conn, acquainted bool) {
		w := newWaiter(sourceOf(c.RemoteAddr()), acquainted)
		names[w] = name
		turns.queue = append(turns.queue, w)
	}
	flood := &flood{from: a52, size: 4096}
	for range 60 {
		add("flood", flood.conn(), false)
	}
	add("IPv4", connFrom("10.0.0.1"), false)
	add("same /48", netHalf(0x2001_0db8_0001_8000).conn(), false)
	add("acquainted", netHalf(0x2001_0db8_0001_7007).conn(), true)
	var order []string
	for len(turns.queue) > 0 {
		waiting := slices.Clone(turns.queue)
		turns.finish(now, 0)
		for _, w := range waiting {
			if !slices.Contains(turns.queue, w) {
				order = append(order, names[w])
			}
		}
	}
	for name, most := range map[string]int{"acquainted": 2, "IPv4": 4, "same /48": 6} {
		if i := slices.Index(order, name); i < 0 || i > most {
			t.Errorf("%s has turn %d: %v", name, i, order[:8])
		}
	}
	if len(turns.served) != 0 {
		t.Errorf("left: %v", turns.served)
	}
}

package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// flood makes silent connections, each from the next /64 of a range of networks.
type flood struct {
	from netHalf // first network
	size int     // number of networks
	next int
}

// netHalf is the first half of an IPv6 address.
type netHalf uint64

// a52 is the beginning of a /52 of IPv6 addresses, which has 4096 networks of /64.
const a52 = netHalf(0x2001_0db8_0001_7000)

func (h netHalf) conn() *Conn {
	ip := make(net.IP, net.IPv6len)
	binary.BigEndian.PutUint64(ip, uint64(h))
	ip[15] = 7
	return connAt(&net.TCPAddr{IP: ip, Port: 1})
}

func (f *flood) conn() *Conn {
	f.next++
	return (f.from + netHalf(f.next%f.size)).conn()
}

// TestFloodOfSources makes 10,000 silent connections per second from all networks of a /52.
// Meanwhile each of several hosts takes 100 ms to its hello. No host may lose its place.
func TestFloodOfSources(t *testing.T) {
	const rate, hosts = 10_000, 9
	silent := &flood{from: a52 + hosts, size: 4096 - hosts}
	// Each host connects once.
	for name, host := range map[string]func(i int) *Conn{
		"IPv4":                          func(i int) *Conn { return connFrom(fmt.Sprintf("10.0.0.%d", i+1)) },
		"another /48":                   func(i int) *Conn { return netHalf(0x2001_0db8_0002_7000 + i).conn() },
		"another /56 of the same /48":   func(i int) *Conn { return netHalf(0x2001_0db8_0001_8000 + i).conn() },
		"the same /56, and known":       func(i int) *Conn { return (a52 + netHalf(i)).conn() },
		"a link's, and it is the first": func(i int) *Conn { return connFrom(fmt.Sprintf("fe80::%d", i)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newPendingConns(DefaultMaxHandshakes)
			for range rate {
				w.enter(silent.conn())
			}
			for i := range hosts {
				c := host(i)
				if name == "the same /56, and known" {
					w.authenticated(c)
				}
				w.enter(c)
				for range rate / 10 {
					if _, out, _ := w.enter(silent.conn()); out == c {
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

// TestFloodFromEverywhere makes silent connections, each from another /48. Known machines must
// keep three quarters of the places, even all at once, and the others the rest.
func TestFloodFromEverywhere(t *testing.T) {
	w := newPendingConns(DefaultMaxHandshakes)
	const kept = DefaultMaxHandshakes * 3 / 4
	n := 0
	floods := func() {
		for range 1000 {
			n++
			w.enter(netHalf(0x2400_0000_0000_0000 + n<<16).conn())
		}
	}
	var hosts []*Conn
	for i := range kept {
		c := withKey(connFrom(fmt.Sprintf("10.0.%d.1", i)), i)
		w.authenticated(c)
		hosts = append(hosts, c)
	}
	floods()
	for _, c := range hosts {
		if _, out, err := w.enter(c); slices.Contains(hosts, out) || !errors.Is(err, ErrTooManyHandshakes) {
			t.Fatalf("a host takes the place of %v: %v", out, err)
		}
	}
	floods()
	if n := w.count() - w.unknown; n != kept {
		t.Errorf("%d of %d hosts are left", n, kept)
	}
	// Known machines must not keep the others out either.
	for i := range 2 * kept {
		c := withKey(connFrom(fmt.Sprintf("10.1.%d.1", i)), i)
		w.authenticated(c)
		w.enter(c)
	}
	if w.unknown != DefaultMaxHandshakes-kept {
		t.Errorf("%d from unknown machines are left", w.unknown)
	}
}

// TestPendingWithoutAddresses makes connections without an IP address. They must count as
// connections of one machine.
func TestPendingWithoutAddresses(t *testing.T) {
	w := newPendingConns(12)
	for i := range 4 {
		c := connAt(&net.UnixAddr{})
		if _, out, err := w.enter(c); (i < 3) != (out == nil) || out != nil && !errors.Is(err, ErrTooManyHandshakesAddress) {
			t.Errorf("connection %d takes the place of %v: %v", i, out, err)
		}
	}
}

// TestKnownMachines checks that the machines that connected least recently are forgotten first,
// and that machines without authentication, or without an IP address, are not known.
func TestKnownMachines(t *testing.T) {
	w := newPendingConns(4)
	knows := func(c *Conn) bool {
		known, _, _ := w.enter(c)
		w.leave(c)
		return known
	}
	first, second := connFrom("192.0.2.1"), connFrom("192.0.2.2")
	w.authenticated(first)
	w.authenticated(second)
	for i := range maxKnown - 1 {
		if i == 100 {
			w.authenticated(first) // again
		}
		w.authenticated(withKey(netHalf(i+1).conn(), i))
	}
	if !knows(first) || knows(second) || w.known.all != maxKnown {
		t.Errorf("%d are known", w.known.all)
	}
	anybody, nowhere := connFrom("192.0.2.3"), connAt(&net.UnixAddr{})
	anybody.verdict.Store(&identity.Verdict{ID: Identity{Insecure: true}})
	w.authenticated(anybody)
	w.authenticated(nowhere)
	if knows(anybody) || knows(nowhere) {
		t.Error("a machine is known of which nobody was authenticated")
	}
}

// TestHandshakesOfNetworks has handshakes from all networks of a /52 wait, and then those from
// other networks and from a known machine. Each of the latter must soon have its turn.
func TestHandshakesOfNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handshakesWithin(rate.NewLimiter(1e15, 1e15))
		end, err := h.begin(t.Context(), connFrom("10.1.0.1"), false)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		turns := make(chan func())
		waiting := 0
		add := func(name string, c *Conn, known bool) {
			waiting++
			go func() {
				end, err := h.begin(t.Context(), c, known)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				turns <- end
			}()
			synctest.Wait() // so that they wait in this order
		}
		flood := &flood{from: a52, size: 4096}
		for range 60 {
			add("flood", flood.conn(), false)
		}
		add("IPv4", connFrom("10.0.0.1"), false)
		add("same /48", netHalf(0x2001_0db8_0001_8000).conn(), false)
		add("known", netHalf(0x2001_0db8_0001_7007).conn(), true)
		for range waiting {
			end()
			end = <-turns
		}
		end()
		for name, most := range map[string]int{"known": 2, "IPv4": 4, "same /48": 6} {
			if i := slices.Index(order, name); i < 0 || i > most {
				t.Errorf("%s has turn %d: %v", name, i, order[:8])
			}
		}
	})
}

//go:build cgo

package attacks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

const (
	fabricNS     = "snfab"
	fabricBridge = "br0"
	fabricPort   = "sp0" // the fabric's end of the cable to the I/O unit
	payloadBytes = 900   // of UDP datagrams, the only frames on the fabric of about this length
)

// TestRDMAAttackFabric lets somebody who has no session read and write packets on the fabric: read
// the frames of others, and write a frame into an element that the I/O unit has lent to the honest
// host. Without encryption both succeed. With it, neither does.
func TestRDMAAttackFabric(t *testing.T) {
	t.Run("in clear", func(t *testing.T) {
		f := newWiretap(t, "no")
		f.forge(func(before, now outcome) bool { return now.forged > before.forged })
		if f.readable == 0 {
			t.Error("the payloads of the honest host's frames are not on the fabric")
		}
	})
	t.Run("encrypted", func(t *testing.T) {
		f := newWiretap(t, "required")
		f.forge(func(before, now outcome) bool {
			return now.notAuthentic > before.notAuthentic || now.forged > before.forged
		})
		f.honest() // in the next session
		if f.readable != 0 {
			t.Errorf("%d packets on the fabric have a payload of the honest host", f.readable)
		}
		if n := f.now().forged; n != 0 {
			t.Errorf("%d forged frames were delivered", n)
		}
		s := f.r.status()
		if s.Violations["not-authentic"] == 0 || s.Ended["protocol"] == 0 {
			t.Errorf("violations %v, sessions ended by %v", s.Violations, s.Ended)
		}
		if n := f.now().sessions; n < 2 {
			t.Errorf("the honest host had %d sessions", n)
		}
	})
}

// wiretap is an attacker at a cable and at a port of the fabric, between an honest host, which sends
// datagrams, and an I/O unit with a station on its LAN, which receives them.
type wiretap struct {
	t        *testing.T
	r        *fixture
	own      net.HardwareAddr // the attacker's
	unit     net.IP
	packets  *testenv.Listener
	send     func(frames ...[]byte)
	host     *net.UDPConn
	station  [2]net.HardwareAddr // the honest host, and its peer on the LAN
	readable int                 // packets with a payload of the honest host
	sent     int

	mu       sync.Mutex
	received map[string]int // payloads that the LAN has received
}

// outcome is what the attacks have had as effects so far.
type outcome struct{ forged, notAuthentic, sessions int }

func newWiretap(t *testing.T, encrypt string) *wiretap {
	f := &wiretap{t: t, r: newPair(t, "--encrypt", encrypt), received: make(map[string]int)}
	unit, _, _ := strings.Cut(unitAddress, ":")
	f.unit = net.ParseIP(unit)
	attacker := testenv.NetNS(t)
	testenv.Veth(t, attacker, "eth0", fabricNS, "sp9")
	t.Cleanup(func() {
		testenv.With(t, fabricNS, func(h *netlink.Handle) error { return h.LinkDel(find(t, h, "sp9")) })
	})
	testenv.With(t, fabricNS, func(h *netlink.Handle) error {
		return h.LinkSetMaster(find(t, h, "sp9"), find(t, h, fabricBridge))
	})
	f.own = testenv.Link(t, attacker, "eth0").Attrs().HardwareAddr
	f.packets = testenv.ListenRaw(t, fabricNS, fabricPort)
	f.send = testenv.SenderRaw(t, attacker, "eth0")
	f.station[0] = testenv.Link(t, f.r.host, "sn0").Attrs().HardwareAddr
	f.station[1] = testenv.Link(t, f.r.lan, "lan0").Attrs().HardwareAddr
	testenv.Neighbour(t, f.r.host, "sn0", netip.MustParseAddr(lanIP), f.station[1])

	var lan *net.UDPConn
	err := netns.Do(f.r.lan, func() (err error) {
		lan, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(lanIP)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = netns.Do(f.r.host, func() (err error) {
		f.host, err = net.DialUDP("udp4", nil, lan.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var ends sync.WaitGroup
	ends.Go(func() {
		for buf := make([]byte, 2*payloadBytes); ; {
			n, err := lan.Read(buf)
			if err != nil {
				return // the test has ended
			}
			f.mu.Lock()
			f.received[string(buf[:n])]++
			f.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		f.host.Close()
		lan.Close()
		ends.Wait()
	})
	return f
}

func find(t *testing.T, h *netlink.Handle, name string) netlink.Link {
	t.Helper()
	link, err := h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// payload returns a payload with a recognisable text in it.
func payload(text string) []byte {
	return []byte(text + strings.Repeat(".", payloadBytes-len(text)))
}

const (
	honestText = "a secret of the honest host"
	forgedText = "from somebody else on the fabric"
)

// now returns the effects so far.
func (f *wiretap) now() outcome {
	f.t.Helper()
	o := outcome{notAuthentic: int(f.r.status().Violations["not-authentic"]), sessions: f.r.of(f.r.hostProcess).Sessions}
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, n := range f.received {
		if strings.HasPrefix(p, forgedText) {
			o.forged += n
		}
	}
	return o
}

// offer sends a datagram from the honest host, and reports whether the LAN has received it so far.
func (f *wiretap) offer() (arrived func() bool) {
	f.t.Helper()
	f.sent++
	p := payload(fmt.Sprintf("%s, number %d", honestText, f.sent))
	_, _ = f.host.Write(p) // fails while there is no session
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.received[string(p)] > 0
	}
}

// honest sends datagrams from the honest host until one has arrived.
func (f *wiretap) honest() {
	f.t.Helper()
	f.until(func() bool { return false })
}

// until sends datagrams from the honest host until one has arrived, or something else has happened.
func (f *wiretap) until(happened func() bool) {
	f.t.Helper()
	var arrived func() bool
	var again time.Time
	f.r.eventually(func() bool {
		if now := time.Now(); now.After(again) {
			arrived, again = f.offer(), now.Add(time.Second)
		}
		return arrived() || happened()
	}, "a datagram of the honest host")
}

// learn has the honest host send a datagram, and returns the write that carries it, with the sequence
// number of the last one on its queue pair.
func (f *wiretap) learn() (w Write) {
	f.t.Helper()
	f.honest()
	// All that was on the fabric before the mark is in front of it.
	f.sent++
	mark := slices.Concat(slices.Repeat([]byte{0xff}, 6), f.own, []byte{0x88, 0xb5}, make([]byte, 46))
	binary.BigEndian.PutUint32(mark[14:], uint32(f.sent))
	f.inject(mark)
	f.packets.Next(func(frame []byte) bool {
		frame = frame[vnetBytes:]
		if IsRoCE(frame) && bytes.Contains(frame, []byte(honestText)) {
			f.readable++
		}
		if p, ok := ParseWrite(frame); ok && p.To().Equal(f.unit) {
			switch {
			case len(p.Data) >= payloadBytes:
				w = p
			case p.QueueTo == w.QueueTo:
				w.PSN = p.PSN
			}
		}
		return bytes.Equal(frame, mark)
	})
	if w.Data == nil {
		f.t.Fatal("no write with a datagram on the fabric")
	}
	return w
}

// inject sends an Ethernet frame from the attacker's port.
func (f *wiretap) inject(frame []byte) {
	f.t.Helper()
	f.send(slices.Concat(make([]byte, vnetBytes), frame))
}

// forge writes forged frames until one has had the effect. An element that is used at that moment, or
// a sequence number that a packet of the honest host has got meanwhile, makes another try necessary.
func (f *wiretap) forge(effect func(before, now outcome) bool) {
	f.t.Helper()
	frame := Datagram(f.station[0], f.station[1], f.host.LocalAddr().(*net.UDPAddr), f.host.RemoteAddr().(*net.UDPAddr),
		payload(forgedText))
	element := func(w Write) int { return int(w.Imm >> 16 & 0xff) }
	for try := range 20 {
		before := f.now()
		last := f.learn()
		first := last
		for last.Key != first.Key || element(last) == element(first) {
			if last.Key != first.Key {
				first = last // another session, or another pool
			}
			last = f.learn()
		}
		size := (int64(last.Addr) - int64(first.Addr)) / int64(element(last)-element(first))
		step := []int{1, -1, 8, -8}[try%4]
		other := (element(last) + step) & 0xff
		forged := last
		forged.PSN = (last.PSN + 1) & psnMask
		forged.Addr += uint64(size * int64(other-element(last)))
		forged.Data = slices.Concat(frame, make([]byte, len(last.Data)-len(frame)))
		forged.Imm = last.Imm&0xff000000 | uint32(other)<<16 | uint32(len(forged.Data))
		f.inject(forged.Packet(f.own))
		// A forged packet that has been taken has had its effect before a later one of the honest host.
		var now outcome
		f.until(func() bool {
			now = f.now()
			return effect(before, now) || now.sessions > before.sessions
		})
		if now = f.now(); effect(before, now) {
			return
		}
		f.t.Logf("try %d, at element %d after %d of size %d: %+v", try, other, element(last), size, now)
	}
	f.t.Fatal("no forged frame had the effect")
}

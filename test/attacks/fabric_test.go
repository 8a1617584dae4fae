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
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

const (
	fabricNS     = "snfab"
	fabricBridge = "br0"
	fabricPort   = "sp0" // the fabric's end of the cable to the I/O unit
	payloadBytes = 900   // of UDP datagrams, the only frames on the fabric of about this length
)

// TestRDMAAttackFabric lets somebody who has no session read and write packets on the fabric: read
// the frames of others, and make a frame for an element that the I/O unit has lent to the honest
// host, and for one that the host has lent. Without encryption all succeed: the frame is on the LAN,
// and comes out of the host's netdevice. With it, nothing does.
func TestRDMAAttackFabric(t *testing.T) {
	for _, mode := range []protocol.Mode{protocol.ModeImm, protocol.ModeSend} {
		t.Run(string(mode)+"/in clear", func(t *testing.T) {
			f := newWiretap(t, mode, "no")
			for _, w := range f.ways {
				w.forge(func(before, now outcome) bool { return now.forged > before.forged })
				if w.readable == 0 {
					t.Errorf("%s: the payloads of the honest frames are not on the fabric", w.name)
				}
			}
		})
		t.Run(string(mode)+"/encrypted", func(t *testing.T) {
			f := newWiretap(t, mode, "required")
			for _, w := range f.ways {
				w.forge(func(before, now outcome) bool {
					return now.notAuthentic > before.notAuthentic || now.forged > before.forged
				})
				w.honest() // in the next session
				if w.readable != 0 {
					t.Errorf("%s: %d packets on the fabric have a payload of an honest frame", w.name, w.readable)
				}
				if n := w.now(); n.forged != 0 || n.sessions < 2 {
					t.Errorf("%s: %+v", w.name, n)
				}
			}
			if s := f.r.status(); s.Ended["protocol"] == 0 || s.Ended["bye"] == 0 {
				t.Errorf("sessions ended by %v", s.Ended)
			}
		})
	}
}

// wiretap is an attacker at a cable and at a port of the fabric, between an honest host and an I/O unit
// with a station on its LAN.
type wiretap struct {
	t       *testing.T
	r       *fixture
	own     net.HardwareAddr // the attacker's
	packets *testenv.Listener
	send    func(frames ...[]byte)
	sent    int // datagrams and marks
	ways    []*way
}

// station is an end of the datagrams: a device in a namespace.
type station struct{ ns, dev, ip string }

// way is one direction: datagrams from one station to another, in packets to an endpoint.
type way struct {
	*wiretap
	name     string
	victim   net.IP // address on the fabric of the endpoint
	refusals func() int
	from     *net.UDPConn
	macs     [2]net.HardwareAddr // of both stations
	readable int                 // packets with an honest payload

	mu       sync.Mutex
	received map[string]int // payloads
}

// outcome is what the attacks on one endpoint have had as effects so far. notAuthentic grows when it
// ends a session for that reason.
type outcome struct{ forged, notAuthentic, sessions int }

func newWiretap(t *testing.T, mode protocol.Mode, encrypt string) *wiretap {
	f := &wiretap{t: t, r: newPair(t, mode, "--encrypt", encrypt)}
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
	unit, _, _ := strings.Cut(unitAddress, ":")
	host, lan := station{f.r.host, "sn0", hostIP}, station{f.r.lan, "lan0", lanIP}
	f.ways = []*way{
		f.newWay("to the I/O unit", host, lan, unit, func() int {
			return int(f.r.status().Violations[notAuthentic])
		}),
		f.newWay("to the host", lan, host, elsewhere, func() int {
			if s := f.r.of(f.r.hostProcess); strings.Contains(s.LastError, seal.ErrNotAuthentic.Error()) {
				return s.Attempts
			}
			return 0
		}),
	}
	return f
}

// notAuthentic is the rule that forged packets break.
const notAuthentic = "not-authentic"

func (f *wiretap) newWay(name string, from, to station, victim string, refusals func() int) *way {
	t := f.t
	w := &way{wiretap: f, name: name, victim: net.ParseIP(victim), refusals: refusals, received: make(map[string]int)}
	for i, s := range []station{from, to} {
		w.macs[i] = testenv.Link(t, s.ns, s.dev).Attrs().HardwareAddr
	}
	testenv.Neighbour(t, from.ns, from.dev, netip.MustParseAddr(to.ip), w.macs[1])
	var in *net.UDPConn
	err := netns.Do(to.ns, func() (err error) {
		in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(to.ip)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = netns.Do(from.ns, func() (err error) {
		w.from, err = net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var ends sync.WaitGroup
	ends.Go(func() {
		for buf := make([]byte, 2*payloadBytes); ; {
			n, err := in.Read(buf)
			if err != nil {
				return // the test has ended
			}
			w.mu.Lock()
			w.received[string(buf[:n])]++
			w.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		w.from.Close()
		in.Close()
		ends.Wait()
	})
	return w
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
func (w *way) now() outcome {
	w.t.Helper()
	o := outcome{notAuthentic: w.refusals(), sessions: w.r.of(w.r.hostProcess).Sessions}
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, n := range w.received {
		if strings.HasPrefix(p, forgedText) {
			o.forged += n
		}
	}
	return o
}

// offer sends an honest datagram, and reports whether it has arrived so far.
func (w *way) offer() (arrived func() bool) {
	w.t.Helper()
	w.sent++
	p := payload(fmt.Sprintf("%s, number %d", honestText, w.sent))
	_, _ = w.from.Write(p) // fails while there is no session
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.received[string(p)] > 0
	}
}

// honest sends honest datagrams until one has arrived.
func (w *way) honest() {
	w.t.Helper()
	w.until(func() bool { return false })
}

// until sends honest datagrams until one has arrived, or something else has happened.
func (w *way) until(happened func() bool) {
	w.t.Helper()
	var arrived func() bool
	var again time.Time
	w.r.eventually(func() bool {
		if now := time.Now(); now.After(again) {
			arrived, again = w.offer(), now.Add(time.Second)
		}
		return arrived() || happened()
	}, "an honest datagram %s", w.name)
}

// learned is a transfer on the fabric, with the sequence numbers of the last one on its queue pair.
type learned struct {
	Transfer
	message uint64 // that of a SendData
}

// learn sends an honest datagram, and returns the transfer that carries it.
func (w *way) learn() (l learned) {
	w.t.Helper()
	w.honest()
	// All that was on the fabric before the mark is in front of it.
	w.sent++
	mark := slices.Concat(slices.Repeat([]byte{0xff}, 6), w.own, []byte{0x88, 0xb5}, make([]byte, 46))
	binary.BigEndian.PutUint32(mark[14:], uint32(w.sent))
	w.inject(mark)
	w.packets.Next(func(frame []byte) bool {
		frame = frame[vnetBytes:]
		if IsRoCE(frame) && bytes.Contains(frame, []byte(honestText)) {
			w.readable++
		}
		if p, ok := ParseTransfer(frame); ok && p.To().Equal(w.victim) {
			if len(p.Data) >= payloadBytes {
				l.Transfer = p
			}
			if p.QueueTo == l.QueueTo {
				l.PSN = p.PSN
				if m, err := protocol.DecodeSendData(p.Data); err == nil {
					l.message = m.TransactionContext
				}
			}
		}
		return bytes.Equal(frame, mark)
	})
	if l.Data == nil {
		w.t.Fatalf("no transfer %s with a datagram on the fabric", w.name)
	}
	return l
}

// inject sends an Ethernet frame from the attacker's port.
func (f *wiretap) inject(frame []byte) {
	f.t.Helper()
	f.send(slices.Concat(make([]byte, vnetBytes), frame))
}

// forge makes packets with a forged frame until one has had the effect. An element that is used at that
// moment, or a sequence number that an honest packet has got meanwhile, makes another try necessary.
func (w *way) forge(effect func(before, now outcome) bool) {
	w.t.Helper()
	frame := Datagram(w.macs[0], w.macs[1], w.from.LocalAddr().(*net.UDPAddr), w.from.RemoteAddr().(*net.UDPAddr),
		payload(forgedText))
	for try := range 20 {
		before := w.now()
		forged := w.learn()
		if forged.Sent() {
			forged.send(frame)
		} else {
			forged = w.write(forged, frame, []int{1, -1, 8, -8}[try%4])
		}
		forged.PSN = (forged.PSN + 1) & psnMask
		w.inject(forged.Packet(w.own))
		// A forged packet that has been taken has had its effect before a later honest one.
		var now outcome
		w.until(func() bool {
			now = w.now()
			return effect(before, now) || now.sessions > before.sessions
		})
		if now = w.now(); effect(before, now) {
			return
		}
		w.t.Logf("%s, try %d: %+v", w.name, try, now)
	}
	w.t.Fatalf("no forged frame %s had the effect", w.name)
}

// send puts a frame into the next message after this one, as long as it.
func (l *learned) send(frame []byte) {
	head := make([]byte, protocol.SendDataOverhead, len(l.Data))
	protocol.PutSendData(head, l.message+1, len(l.Data)-len(head))
	l.Data = append(head, frame...)[:len(l.Data)]
}

// write returns a write of a frame to the element that lies a number of steps behind that of the last
// write.
func (w *way) write(last learned, frame []byte, step int) learned {
	w.t.Helper()
	element := func(l learned) int { return int(l.Imm >> 16 & 0xff) }
	first := last
	for last.Key != first.Key || element(last) == element(first) {
		if last.Key != first.Key {
			first = last // another session, or another pool
		}
		last = w.learn()
	}
	size := (int64(last.Addr) - int64(first.Addr)) / int64(element(last)-element(first))
	other := (element(last) + step) & 0xff
	last.Addr += uint64(size * int64(other-element(last)))
	last.Data = slices.Concat(frame, make([]byte, len(last.Data)-len(frame)))
	last.Imm = last.Imm&0xff000000 | uint32(other)<<16 | uint32(len(last.Data))
	return last
}

package lan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// TestNetnsWholeDatagramsOfQueues sends more to one queue of a macvtap than is read from the queue.
// It expects that queue to take only whole datagrams, and the other queues to receive their frames
// while that queue is full.
func TestNetnsWholeDatagramsOfQueues(t *testing.T) {
	testenv.NeedTUN(t)
	for name, cfg := range map[string]lan.Config{
		"spread": {Queues: 4}, "with a latency queue": {Queues: 4, Latency: &latency},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := newTestbed(t)
			testenv.DisableIPv6(t, s.station)
			cfg.MAC, cfg.Offloads = macA, vnet.AllOffloads
			p := s.open(t, s.spec(t, "macvtap"), cfg)
			if got := p.EarlyDiscard(); !got.On {
				t.Fatal(got)
			}
			testenv.Address(t, s.station, "eth0", "10.0.0.1/24")
			testenv.Run(t, s.station, "ip", "neigh", "replace", "10.0.0.2", "lladdr", macA.String(), "dev", "eth0",
				"nud", "permanent")
			send := testenv.LongDatagrams(t, s.station, "10.0.0.2", 60000)
			full := -1 // the queue that gets all fragments
			send()
			slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
			testenv.Eventually(t, func() bool {
				for i, q := range p.Queues() {
					for {
						f, err := testenv.ReadFrame(q, slot)
						if err != nil {
							break
						}
						if len(f) > 1000 {
							full = i
						}
					}
				}
				return full >= 0
			}, "fragments")
			for range 100 {
				pieces, longest := testenv.Flood(t, p.Queues()[full], send)
				if longest >= discard.Patience { // after the patience all frames pass
					continue
				}
				if pieces.Broken > 0 || pieces.Whole < 35 {
					t.Errorf("%d whole datagrams were read, and parts of %d", pieces.Whole, pieces.Broken)
				}
				for range 50 {
					send() // until the queue is full again
				}
				var frames [][]byte
				for i := range 64 {
					frames = append(frames, udp(macA, 0, i))
				}
				testenv.SendRaw(t, s.station, "eth0", frames...)
				got := 0
				for i, q := range p.Queues() {
					for i != full {
						if _, err := testenv.ReadFrame(q, slot); err != nil {
							break
						}
						got++
					}
				}
				if got < len(frames)/4 {
					t.Errorf("%d frames came to the queues that had room", got)
				}
				return
			}
			t.Fatal("the reader is kept from reading again and again")
		})
	}
}

// TestNetnsDiscardIsCounted sends more frames to a host than its queue has room for, and reads none.
// It expects the statistics to have all frames that are not in the queue.
func TestNetnsDiscardIsCounted(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range []string{"macvtap", "tap"} { // a packet socket has no early discard
		t.Run(kind, func(t *testing.T) {
			s := newTestbed(t)
			p := s.open(t, s.spec(t, kind), lan.Config{MAC: macA, Queues: 1, Offloads: vnet.AllOffloads})
			if got := p.EarlyDiscard(); !got.On {
				t.Fatal(got)
			}
			const sent, room = 1000, 512
			var frames [][]byte
			for i := range sent {
				frames = append(frames, udp(macA, 0, i))
			}
			testenv.SendRaw(t, s.station, "eth0", frames...)
			testenv.Eventually(t, func() bool { return p.Stats().Dropped >= sent-room }, "the count of dropped frames")
			slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
			arrived := 0
			for {
				f, err := testenv.ReadFrame(p.Queues()[0], slot)
				if err != nil {
					break
				}
				if f[vnet.HdrLen+11] == 99 { // not of the kernel
					arrived++
				}
			}
			if n := p.Stats().Dropped; n+uint64(arrived) < sent {
				t.Errorf("%d frames were dropped, and %d arrived, of %d", n, arrived, sent)
			}
		})
	}
}

// TestNetnsDiscardStatus checks that ports report whether they have early packet discard.
func TestNetnsDiscardStatus(t *testing.T) {
	testenv.NeedTUN(t)
	s := newTestbed(t)
	for _, kind := range strings.Fields(kinds) {
		for _, no := range []bool{false, true} {
			p, err := lan.Open(s.spec(t, kind), lan.Config{NetNS: s.unit, Offloads: vnet.AllOffloads, NoDiscard: no})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.EarlyDiscard(); got.On != (!no && kind != "packet") || got.On != (got.Reason == "") {
				t.Errorf("%s, not wanted %t: %v", kind, no, got)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNetnsWholeDatagrams sends many times more to a port than is read from the port. With early
// packet discard, it expects each datagram to be either received or dropped as a whole.
func TestNetnsWholeDatagrams(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range []string{"macvtap", "tap"} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, early %t", kind, early), func(t *testing.T) {
				testenv.NoLeaks(t)
				s := newTestbed(t)
				testenv.DisableIPv6(t, s.station)
				p := s.open(t, s.spec(t, kind), lan.Config{MAC: macA, Offloads: vnet.AllOffloads, NoDiscard: !early})
				testenv.Address(t, s.station, "eth0", "10.0.0.1/24")
				testenv.Run(t, s.station, "ip", "neigh", "replace", "10.0.0.2", "lladdr", macA.String(), "dev", "eth0",
					"nud", "permanent")
				send := testenv.LongDatagrams(t, s.station, "10.0.0.2", 60000)
				for range 100 {
					pieces, longest := testenv.Flood(t, p.Queues()[0], send)
					if longest >= discard.Patience { // after the patience all frames pass
						continue
					}
					// 1400 frames were read during the flood, 384 after it.
					if early && (pieces.Broken > 0 || pieces.Whole < 35) || !early && pieces.Broken < 2*pieces.Whole {
						t.Errorf("%d whole datagrams were read, and parts of %d", pieces.Whole, pieces.Broken)
					}
					return
				}
				t.Fatal("the reader is kept from reading again and again")
			})
		}
	}
}

// TestNetnsStatsBeside has the socket beside a macvtap count a frame each time that the host is promiscuous.
// The statistics must keep the counts of the sockets that are closed.
func TestNetnsStatsBeside(t *testing.T) {
	testenv.NeedTUN(t)
	s := newTestbed(t)
	p := s.open(t, s.spec(t, "macvtap"), lan.Config{MAC: macA, Queues: 1, Offloads: vnet.AllOffloads})
	slot := make([]byte, vnet.Headroom+64)
	counted := uint64(0)
	for range 2 {
		if err := p.SetPromisc(true); err != nil {
			t.Fatal(err)
		}
		testenv.SendRaw(t, s.station, "eth0", udp(macB, 0, 1))
		testenv.Eventually(t, func() bool {
			_, _ = testenv.ReadFrame(p.Queues()[0], slot)
			return p.Stats().TooLong > counted
		}, "a frame that is too long")
		counted = p.Stats().TooLong
		if err := p.SetPromisc(false); err != nil {
			t.Fatal(err)
		}
		if n := p.Stats().TooLong; n < counted {
			t.Fatalf("%d of %d frames are counted after the socket was closed", n, counted)
		}
	}
}

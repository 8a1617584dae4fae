package endpoints

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// linkControl returns frames that are for the next switch only, by name.
func linkControl(src protocol.MAC) map[string][]byte {
	make := func(last byte, dst [6]byte, rest ...byte) []byte {
		f := make([]byte, vnet.HdrLen, vnet.HdrLen+64)
		if last != 0xff {
			dst = [6]byte{1, 0x80, 0xc2, 0, 0, last}
		}
		f = append(append(f, dst[:]...), src[:]...)
		f = append(f, rest...)
		return append(f, make([]byte, vnet.HdrLen+60-len(f))...)
	}
	cgmp := [6]byte{1, 0, 0xc, 0xdd, 0xdd, 0xdd}
	return map[string][]byte{
		"PAUSE":                        make(1, [6]byte{}, 0x88, 0x08, 0, 1, 0xff, 0xff),
		"BPDU":                         make(0, [6]byte{}, 0, 38, 0x42, 0x42, 3),
		"LACP":                         make(2, [6]byte{}, 0x88, 0x09, 1),
		"EAPOL logoff":                 make(3, [6]byte{}, 0x88, 0x8e, 2, 2),
		"LLDP":                         make(14, [6]byte{}, 0x88, 0xcc, 2),
		"EAPOL logoff to one":          make(0xff, station, 0x88, 0x8e, 2, 2),
		"PAUSE in a VLAN to one":       make(0xff, station, 0x81, 0, 0, 5, 0x88, 0x08, 0, 1, 0xff, 0xff),
		"LACP in two VLANs to one":     make(0xff, station, 0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x88, 0x09, 1),
		"a frame to the bridges' last": make(15, [6]byte{}, 0x88, 0xb5, 1),
		"MVRP":                         make(0x21, [6]byte{}, 0x88, 0xf5, 0),
		"CFM":                          make(0x30, [6]byte{}, 0x89, 0x02, 0),
		"MMRP to one":                  make(0xff, station, 0x88, 0xf6, 0),
		"CGMP":                         make(0xff, cgmp, 0, 42, 0xaa, 0xaa, 3, 0, 0, 0xc, 0x20, 1),
	}
}

// TestNetnsPolicyLinkControl lets a host send frames for the next switch. None of them may reach
// the LAN unless the policy permits it.
func TestNetnsPolicyLinkControl(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, "")
			p := s.peer("a")
			frames := linkControl(p.welcome.MAC)
			l := testenv.ListenRaw(t, s.lanNS, "lan0")
			// arrived sends all these frames and returns the names of those that arrived on the
			// LAN.
			arrived := func(mark byte) (names []string) {
				t.Helper()
				for _, f := range frames {
					p.send(f)
				}
				p.send(marked(toAll, p.welcome.MAC, mark, 0))
				l.Next(func(got []byte) bool {
					for name, f := range frames {
						// A veth carries the outer tag outside the frame.
						if len(got) >= vnet.HdrLen+12 && slices.Equal(got[vnet.HdrLen:vnet.HdrLen+12], f[vnet.HdrLen:vnet.HdrLen+12]) &&
							(slices.Equal(got[vnet.HdrLen+12:vnet.HdrLen+16], f[vnet.HdrLen+12:vnet.HdrLen+16]) ||
								strings.Contains(name, "VLAN")) {
							names = append(names, name)
						}
					}
					m, ok := markOf(got)
					return ok && m == mark
				})
				return names
			}
			if names := arrived('1'); len(names) != 0 {
				t.Errorf("the LAN received %q", names)
			}
			// A frame is counted after it has been written.
			testenv.Eventually(t, func() bool { return find(s.unit, "a").Statistics.TxFrames == 1 }, "one frame being counted")
			h := find(s.unit, "a")
			if h.Dropped != (guard.Dropped{LinkControl: uint64(len(frames))}) || len(h.DropReasons) != 1 ||
				!strings.Contains(h.DropReasons[0], "`link-control: yes`") {
				t.Errorf("%+v, %+v, %q", h.Dropped, h.Statistics, h.DropReasons)
			}
			put(t, s.unit, "default: {link-control: yes}")
			want := len(frames)
			if kind == "tap" {
				want = 7 // a bridge forwards only these
			}
			if names := arrived('2'); len(names) < want {
				t.Errorf("allowed, the LAN received %q", names)
			}
		})
	}
}

// superFrame returns a TCP super-frame from src to all stations, with segments of size bytes.
func superFrame(src protocol.MAC, payload, size int) []byte {
	f := make([]byte, vnet.HdrLen+14+20+20+payload)
	eth := f[vnet.HdrLen:]
	copy(eth, toAll[:])
	copy(eth[6:], src[:])
	binary.BigEndian.PutUint16(eth[12:], 0x0800)
	copy(eth[14:], []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 78, 0, 2, 10, 78, 0, 1})
	binary.BigEndian.PutUint16(eth[16:], uint16(40+payload))
	eth[34+12] = 5 << 4
	h := vnet.Header{Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, HdrLen: 54, GSOSize: uint16(size), CsumStart: 34,
		CsumOffset: 16}
	h.Encode(f)
	return f
}

// TestNetnsPolicySegments lets a host send super-frames of tiny segments, which have to be dropped,
// and then of small ones, each of which has to count as a packet.
func TestNetnsPolicySegments(t *testing.T) {
	s := newShared(t, "macvtap", "")
	p := s.peer("a")
	l := listener{testenv.ListenRaw(t, s.lanNS, "lan0")}
	own := p.welcome.MAC
	for _, size := range []int{1, 8, 47} {
		p.send(superFrame(own, 60000, size))
	}
	p.send(marked(toAll, own, '1', 0))
	if got := l.marks('1'); got != "1" {
		t.Errorf("the LAN received %q", got)
	}
	testenv.Eventually(t, func() bool { return find(s.unit, "a").Statistics.TxFrames == 1 }, "one frame being counted")
	if h := find(s.unit, "a"); h.Dropped.TinySegments != 3 {
		t.Errorf("%+v, %+v", h.Dropped, h.Statistics)
	}
	const (
		pps    = 1000
		frames = 10
		each   = 100 // packets
	)
	put(t, s.unit, fmt.Sprintf("default: {max-tx-pps: %d}", pps))
	begun := time.Now()
	for range frames {
		p.send(superFrame(own, each*48, 48))
	}
	p.send(marked(toAll, own, '2', 0))
	l.marks('2')
	// The burst that may have been saved, and the last frame, which exceeds the rest, do not count.
	if took, least := time.Since(begun), time.Duration(frames*each-128-each)*time.Second/pps; took < least {
		t.Errorf("%d packets passed in %v, which should take %v", frames*each, took, least)
	}
	testenv.Eventually(t, func() bool { return find(s.unit, "a").Statistics.TxFrames == frames+2 },
		"all frames being counted")
	if h := find(s.unit, "a"); h.TxLimited == 0 || h.MaxTxPPS != pps {
		t.Errorf("limited %d times by %d packets/s, %+v", h.TxLimited, h.MaxTxPPS, h.Statistics)
	}
}

// TestNetnsSharedAddress lets two hosts share an address, as the members of a bond do. Frames for
// the address have to reach the host that has sent last, or both, and each host may send.
func TestNetnsSharedAddress(t *testing.T) {
	const text = "default: {macs: \"02:bb:00:00:00:01\", share: bond}\n"
	for _, kind := range []string{"tap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, text)
			a, b := s.peer("a"), s.peer("b")
			mac := a.welcome.MAC
			if mac != (protocol.MAC{2, 0xbb, 0, 0, 0, 1}) || b.welcome.MAC != mac {
				t.Fatalf("they have %v and %v", mac, b.welcome.MAC)
			}
			l := listener{testenv.ListenRaw(t, s.lanNS, "lan0")}
			for i, active := range []*peer{a, b, a} {
				mark := byte('a' + 3*i)
				a.up(true)
				b.up(true)
				active.send(marked(toAll, mac, mark, 0))
				if got := l.marks(mark); !strings.HasSuffix(got, string(mark)) { // also marks of the station
					t.Errorf("the LAN received %q", got)
				}
				s.send(marked(mac, station, mark+1, 0))
				s.send(marked(toAll, station, mark+2, 0))
				for _, p := range []*peer{a, b} {
					if got := p.marks(mark + 2); strings.ContainsRune(got, rune(mark+1)) != (p == active || kind == "packet") {
						t.Errorf("turn %d: the active one %t received %q", i, p == active, got)
					}
				}
			}
			for _, h := range s.unit.Status().Hosts {
				if h.Announced != 0 || h.Statistics.TxSource != 0 {
					t.Errorf("%s: announced by %d frames, %+v", h.Name, h.Announced, h.Statistics)
				}
			}
		})
	}
	t.Run("not shared", func(t *testing.T) {
		s := newShared(t, "tap", strings.Replace(text, "bond", "none", 1))
		s.peer("a")
		var refused *session.RefusedError
		if _, err := s.tryPeer("b"); !errors.As(err, &refused) || refused.Code != session.CodePolicy {
			t.Errorf("a second host with the address: %v", err)
		}
	})
}

// TestNetnsPolicyGroupRate lets a host send many broadcasts, with unicast frames among them. All
// unicast frames have to reach the LAN. No more broadcasts may reach the LAN, or another host, than
// the policy permits in the time.
func TestNetnsPolicyGroupRate(t *testing.T) {
	const (
		rate, burst = 100, 128
		each        = 10 // broadcasts to a frame for one station
		singles     = 30 // few enough that no queue gets full
	)
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, fmt.Sprintf("default: {max-tx-group-pps: %d}", rate))
			a, b := s.peer("a"), s.peer("b")
			own := a.welcome.MAC
			l := listener{testenv.ListenRaw(t, s.lanNS, "lan0")}
			begun := time.Now()
			for range singles {
				for range each {
					a.send(marked(toAll, own, 'b', 0))
				}
				a.send(marked(station, own, 's', 0))
			}
			a.send(marked(station, own, 'z', 0))
			got := l.marks('z')
			most := int(burst + 1 + rate*time.Since(begun).Seconds())
			passed := strings.Count(got, "b")
			if strings.Count(got, "s") != singles || passed < burst || passed > most {
				t.Errorf("the LAN received %d broadcasts, at most %d, and %q", passed, most, strings.ReplaceAll(got, "b", ""))
			}
			s.send(marked(toAll, station, 'z', 0))
			if n := strings.Count(b.marks('z'), "b"); n > passed {
				t.Errorf("another host received %d broadcasts, the LAN %d", n, passed)
			}
			// A frame is counted after it has been written.
			testenv.Eventually(t, func() bool {
				return find(s.unit, "a").Statistics.TxFrames == uint64(passed+singles+1)
			}, "what passed being counted")
			h := find(s.unit, "a")
			want := guard.Dropped{GroupRate: uint64(each*singles - passed)}
			if h.Dropped != want || h.MaxTxGroupPPS != rate || h.TxLimited != 0 {
				t.Errorf("%+v, %d/s, limited %d times", h.Dropped, h.MaxTxGroupPPS, h.TxLimited)
			}
			if why := strings.Join(h.DropReasons, "; "); strings.Contains(why, "`max-tx-group-pps`") != (want.GroupRate > 0) {
				t.Errorf("dropped because %q", h.DropReasons)
			}
		})
	}
}

// TestNetnsPolicyUnknownRate lets a host send many frames to stations that do not exist, with frames
// to one that has sent something among them. A bridge would copy the former to all hosts: no more
// may reach another host than the policy permits in the time. All of the latter have to arrive.
func TestNetnsPolicyUnknownRate(t *testing.T) {
	const (
		rate, burst = 100, 128
		each        = 10
		singles     = 30 // few enough that no queue gets full
	)
	s := newShared(t, "tap", fmt.Sprintf("default: {max-tx-group-pps: %d}", rate))
	a, b := s.peer("a"), s.peer("b")
	own := a.welcome.MAC
	l := listener{testenv.ListenRaw(t, s.lanNS, "lan0")}
	s.send(marked(toAll, station, '0', 0))
	a.marks('0')
	begun := time.Now()
	for i := range singles {
		for j := range byte(each) {
			a.send(marked(protocol.MAC{2, 0x44, 0, 0, byte(i), j}, own, 'u', 0))
		}
		a.send(marked(station, own, 's', 0))
	}
	a.send(marked(station, own, 'z', 0))
	got := l.marks('z')
	most := int(burst + 1 + rate*time.Since(begun).Seconds())
	passed := strings.Count(got, "u")
	if strings.Count(got, "s") != singles || passed < burst || passed > most {
		t.Errorf("the LAN received %d frames to unknown stations, at most %d, and %q", passed, most,
			strings.ReplaceAll(got, "u", ""))
	}
	a.send(marked(toAll, own, 'z', 0))
	if n := strings.Count(b.marks('z'), "u"); n != passed {
		t.Errorf("another host received %d frames to unknown stations, the LAN %d", n, passed)
	}
	testenv.Eventually(t, func() bool {
		return find(s.unit, "a").Dropped == guard.Dropped{GroupRate: uint64(each*singles - passed)}
	}, "the dropped frames being counted")
}

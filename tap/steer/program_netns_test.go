package steer_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap/steer"
)

// packet describes a frame.
type packet struct {
	tags     []uint16 // EtherTypes of VLAN tags, outermost first
	src, dst string
	tos      byte
	frag     uint16 // flags and offset, of IPv4
	options  int    // words of 4 bytes, of IPv4
	proto    byte
	l4       []byte // the bytes after the IP header
	size     int    // size of the IP packet, at least that of its headers and l4
}

// frame returns the frame.
func (p packet) frame() []byte {
	f := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	for i, tpid := range p.tags {
		f = binary.BigEndian.AppendUint16(f, tpid)
		f = binary.BigEndian.AppendUint16(f, uint16(100+i))
	}
	src, dst := netip.MustParseAddr(p.src), netip.MustParseAddr(p.dst)
	var ip []byte
	if src.Is4() {
		f = binary.BigEndian.AppendUint16(f, 0x0800)
		ip = make([]byte, 20+4*p.options)
		ip[0], ip[1], ip[8], ip[9] = byte(0x45+p.options), p.tos, 64, p.proto
		binary.BigEndian.PutUint16(ip[6:], p.frag)
		copy(ip[12:], src.AsSlice())
		copy(ip[16:], dst.AsSlice())
		ip = append(ip, p.l4...)
		ip = append(ip, make([]byte, max(p.size-len(ip), 0))...)
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	} else {
		f = binary.BigEndian.AppendUint16(f, 0x86dd)
		ip = make([]byte, 40)
		binary.BigEndian.PutUint32(ip, 6<<28|uint32(p.tos)<<20|0x12345)
		ip[6], ip[7] = p.proto, 64
		copy(ip[8:], src.AsSlice())
		copy(ip[24:], dst.AsSlice())
		ip = append(ip, p.l4...)
		ip = append(ip, make([]byte, max(p.size-len(ip), 0))...)
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	}
	return append(f, ip...)
}

// ports returns the beginning of a TCP or UDP header with these ports.
func ports(src, dst uint16) []byte {
	return append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, src), dst), make([]byte, 16)...)
}

// loaded is the program of a rule for a hook, loaded into the kernel.
type loaded struct {
	t    testing.TB
	hook steer.Hook
	p    *ebpf.Program
}

func load(t testing.TB, r steer.Rule, h steer.Hook) loaded {
	t.Helper()
	testenv.NeedRoot(t)
	p, err := r.Load(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return loaded{t, h, p}
}

// queue runs the program on a frame, and returns the program's result. For an outgoing frame it
// puts another Ethernet header in front, because the kernel's test run removes the first Ethernet
// header, as from a received frame.
func (l loaded) queue(frame []byte) int {
	l.t.Helper()
	if l.hook != steer.Fanout {
		frame = append([]byte{2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4, 0x88, 0xb5}, frame...)
	}
	q, err := l.p.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		l.t.Fatalf("% x: %v", frame, err)
	}
	return int(q)
}

const (
	ef    = 46 << 2
	limit = 1518
)

// TestNetnsProgram runs the program on each kind of frame, and expects the latency queue or a bulk
// queue.
func TestNetnsProgram(t *testing.T) {
	udp := packet{src: "10.0.0.1", dst: "10.0.0.2", proto: 17, l4: ports(1000, 2000), size: 100}
	udp6 := packet{src: "fd00::1", dst: "fd00::2", proto: 17, l4: ports(1000, 2000), size: 100}
	with := func(p packet, change func(*packet)) packet {
		change(&p)
		return p
	}
	arp := append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 2, 8, 6}, make([]byte, 46)...)
	tagged := append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 5, 8, 6}, make([]byte, 46)...)
	const other, latency = false, true
	for _, tc := range []struct {
		name  string
		frame []byte
		small bool // the result if small frames are latency-sensitive
		want  bool
	}{
		{"UDP", udp.frame(), latency, other},
		{"UDP, long", with(udp, func(p *packet) { p.size = 1000 }).frame(), other, other},
		{"UDP, EF", with(udp, func(p *packet) { p.tos = ef }).frame(), latency, latency},
		{"UDP, EF with ECN", with(udp, func(p *packet) { p.tos = ef | 3 }).frame(), latency, latency},
		{"UDP, DSCP beside EF", with(udp, func(p *packet) { p.tos = ef + 4; p.size = 500 }).frame(), other, other},
		{"UDP, EF, MTU", with(udp, func(p *packet) { p.tos = ef; p.size = 1500; p.l4 = ports(1, 2) }).frame(), latency,
			latency},
		{"UDP, EF, a byte over the limit", with(udp,
			func(p *packet) { p.tos = ef; p.size = limit - 14 + 1; p.l4 = ports(3, 4) }).frame(), other, other},
		{"UDP, EF, super-frame", with(udp, func(p *packet) { p.tos = ef; p.size = 3000; p.l4 = ports(5, 6) }).frame(), other,
			other},
		{"UDP, VLAN", with(udp, func(p *packet) { p.tos = ef; p.tags = []uint16{0x8100} }).frame(), latency, latency},
		{"UDP, two VLANs", with(udp, func(p *packet) { p.tos = ef; p.tags = []uint16{0x88a8, 0x8100} }).frame(), latency,
			latency},
		{"UDP, three VLANs", with(udp, func(p *packet) { p.tos = ef; p.tags = []uint16{0x88a8, 0x8100, 0x8100} }).frame(),
			other, other},
		{"UDP, IPv4 options", with(udp, func(p *packet) { p.tos = ef; p.options = 10 }).frame(), latency, latency},
		{"fragment, EF", with(udp, func(p *packet) { p.tos = ef; p.frag = 0x2000 }).frame(), latency, latency},
		{"last fragment, EF", with(udp, func(p *packet) { p.tos = ef; p.frag = 100 }).frame(), latency, latency},
		{"UDP6", udp6.frame(), latency, other},
		{"UDP6, EF", with(udp6, func(p *packet) { p.tos = ef | 1 }).frame(), latency, latency},
		{"UDP6, CS7", with(udp6, func(p *packet) { p.tos = 56 << 2 }).frame(), latency, latency},
		{"UDP6, EF, two VLANs", with(udp6, func(p *packet) { p.tos = ef; p.tags = []uint16{0x8100, 0x8100} }).frame(),
			latency, latency},
		{"UDP6, long", with(udp6, func(p *packet) { p.size = 1000; p.l4 = ports(7, 8) }).frame(), other, other},
		{"fragment of IPv6, EF", with(udp6, func(p *packet) { p.tos = ef; p.proto = 44 }).frame(), latency, latency},
		{"echo", with(udp, func(p *packet) { p.proto, p.l4, p.size = 1, []byte{8, 0}, 1500 }).frame(), latency, latency},
		{"echo reply", with(udp, func(p *packet) { p.proto, p.l4 = 1, []byte{0, 0} }).frame(), latency, latency},
		{"echo, long", with(udp, func(p *packet) { p.proto, p.l4, p.size = 1, []byte{8, 0}, 3000 }).frame(), other, other},
		{"fragment of an echo", with(udp, func(p *packet) {
			p.proto, p.l4, p.frag, p.size = 1, []byte{8, 0}, 0x2000,
				1400
		}).frame(), other, other},
		{"ICMP unreachable", with(udp, func(p *packet) {
			p.proto, p.l4, p.size, p.src = 1, []byte{3, 1}, 400,
				"10.0.0.9"
		}).frame(), other, other},
		{"echo 6", with(udp6, func(p *packet) { p.proto, p.l4, p.size = 58, []byte{128, 0}, 1500 }).frame(), latency,
			latency},
		{"echo reply 6", with(udp6, func(p *packet) { p.proto, p.l4 = 58, []byte{129, 0} }).frame(), latency, latency},
		{"neighbour solicitation", with(udp6, func(p *packet) { p.proto, p.l4 = 58, []byte{135, 0} }).frame(), latency,
			latency},
		{"redirect", with(udp6, func(p *packet) { p.proto, p.l4 = 58, []byte{137, 0} }).frame(), latency, latency},
		{"multicast listener report", with(udp6, func(p *packet) {
			p.proto, p.l4, p.size, p.src = 58, []byte{131, 0}, 400,
				"fd00::9"
		}).frame(), other, other},
		{"ARP", arp, latency, latency},
		{"ARP, VLAN", tagged, latency, latency},
		{"ARP, long", append(arp, make([]byte, limit)...), other, other},
		{"spanning tree", append([]byte{1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 38}, make([]byte, 46)...), other, other},
		{"IPv4, header cut off", with(udp, func(p *packet) { p.tos = ef }).frame()[:14+19], other, other},
		{"IPv6, header cut off", with(udp6, func(p *packet) { p.tos = ef }).frame()[:14+39], other, other},
		{"UDP, EF, ports cut off", with(udp, func(p *packet) { p.tos = ef }).frame()[:14+22], latency, latency},
		{"echo, type cut off", with(udp, func(p *packet) { p.proto = 1 }).frame()[:14+20], latency, other},
		{"VLAN tag cut off", tagged[:16], other, other},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, size := range []int{0, 200} {
				want := tc.want
				if size > 0 {
					want = tc.small
				}
				r := steer.Rule{Classes: steer.DefaultClasses(), Queues: 4, Limit: limit}
				r.Size = size
				for _, h := range []steer.Hook{steer.TAP, steer.Fanout} {
					if h == steer.Fanout && shortened(tc.frame) {
						continue // the kernel refuses such a frame
					}
					if got := load(t, r, h).queue(tc.frame); (got == r.Queues-1) != want {
						t.Errorf("hook %d, small frames up to %d: queue %d", h, size, got)
					}
					m := model{rule: r, past: map[uint32]bool{}}
					if got := m.queue(tc.frame, len(tc.frame)); (got == r.Queues-1) != want {
						t.Errorf("the model says queue %d", got)
					}
				}
			}
		})
	}
}

// shortened reports whether a frame may lack a part of its IP header.
func shortened(f []byte) bool {
	return len(f) < 14+40
}

// TestNetnsOrder expects all frames of a flow in a bulk queue after the first long frame of the
// flow. After a pause, short frames of the flow are latency-sensitive again.
func TestNetnsOrder(t *testing.T) {
	r := steer.Rule{Classes: steer.DefaultClasses(), Queues: 2, Limit: limit}
	short := packet{src: "10.0.0.1", dst: "10.0.0.2", tos: ef, proto: 6, l4: ports(22, 5000), size: 100}
	other, back, long := short, short, short
	other.l4 = ports(22, 5001)
	back.src, back.dst, back.l4 = short.dst, short.src, ports(5000, 22)
	long.size = 3000
	for _, tc := range []struct {
		name  string
		pause bool
	}{{"no pause", false}, {"pauses", true}} {
		t.Run(tc.name, func(t *testing.T) {
			r := r
			r.Pause = 1 << 62
			if tc.pause {
				r.Pause = 1
			}
			l := load(t, r, steer.TAP)
			want := func(name string, p packet, latency bool) {
				t.Helper()
				if got := l.queue(p.frame()); (got == 1) != latency {
					t.Errorf("%s: queue %d", name, got)
				}
			}
			want("short", short, true)
			want("long", long, false)
			want("short again", short, tc.pause)
			want("another flow", other, true)
			want("the other direction, which a hook of another queue sees", back, tc.pause)
			want("long again", long, false)
		})
	}
}

// random returns a frame that is likely to be valid.
func random(rnd *rand.Rand) []byte {
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	p := packet{
		tos: byte(rnd.Uint32()), size: rnd.IntN(2500),
		proto: []byte{1, 6, 17, 58, 44, 132, byte(rnd.Uint32())}[rnd.IntN(7)],
	}
	if rnd.IntN(2) == 0 {
		p.tos = ef
	}
	p.src, p.dst = pick("10.0.0.1", "10.0.0.2"), pick("10.0.0.2", "172.16.1.1")
	if rnd.IntN(2) == 0 {
		p.src, p.dst = pick("fd00::1", "fd00::2"), pick("fd00::2", "fe80::abcd:1")
	}
	for range rnd.IntN(4) {
		p.tags = append(p.tags, []uint16{0x8100, 0x88a8}[rnd.IntN(2)])
	}
	if rnd.IntN(4) == 0 {
		p.frag = uint16(rnd.Uint32())
	}
	p.options = max(rnd.IntN(20)-9, 0)
	p.l4 = make([]byte, 8+rnd.IntN(20))
	for i := range p.l4 {
		p.l4[i] = byte(rnd.IntN(3))
	}
	if rnd.IntN(2) == 0 {
		p.l4[0] = byte(120 + rnd.IntN(20))
	}
	f := p.frame()
	switch rnd.IntN(6) {
	case 0:
		f = f[:max(min(len(f), 60), rnd.IntN(len(f)))]
	case 1:
		for range 4 {
			f[rnd.IntN(min(len(f), 80))] = byte(rnd.Uint32())
		}
	}
	return f
}

// TestNetnsProgramIsModel compares the program with the model over sequences of frames.
func TestNetnsProgramIsModel(t *testing.T) {
	for _, r := range []steer.Rule{
		{Classes: steer.DefaultClasses(), Queues: 2, Limit: limit},
		{Classes: steer.DefaultClasses(), Queues: 5, Limit: limit},
		{Classes: steer.Classes{DSCP: 1 << 46, Size: 300}, Queues: 3, Limit: 1000},
		{Classes: steer.Classes{Size: 128}, Queues: 16, Limit: limit},
	} {
		for _, never := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d queues, size %d, never %t", r.Queues, r.Size, never), func(t *testing.T) {
				rule := r
				if rule.Pause = 1; never {
					rule.Pause = 1 << 62
				}
				latency, used := 0, map[int]bool{}
				for _, h := range []steer.Hook{steer.TAP, steer.Fanout} {
					l := load(t, rule, h)
					m := model{rule: rule, never: never, past: map[uint32]bool{}}
					rnd := rand.New(rand.NewPCG(1, uint64(r.Queues)))
					for i := range 4000 {
						f := random(rnd)
						want, got := m.queue(f, len(f)), l.queue(f)
						if want != got {
							t.Fatalf("hook %d, frame %d, %d bytes, % x…: queue %d, the model says %d", h, i, len(f), f[:min(len(f), 60)],
								got, want)
						}
						used[got] = true
						if got == rule.Queues-1 {
							latency++
						}
					}
				}
				if latency < 200 || latency > 7000 || len(used) < min(rule.Queues, 8) {
					t.Errorf("%d of 8000 frames are latency-sensitive, queues %v are used", latency, used)
				}
			})
		}
	}
}

// TestNetnsArbitraryFrames compares the program with the model over frames of random bytes, of all
// lengths, of which only the Ethernet header is likely to be valid.
func TestNetnsArbitraryFrames(t *testing.T) {
	rule := steer.Rule{Classes: steer.Classes{DSCP: 1<<46 | 1<<63 | 1, Size: 100}, Queues: 4, Limit: 1200, Pause: 1}
	l := load(t, rule, steer.TAP)
	rnd := rand.New(rand.NewPCG(3, 4))
	used := map[int]bool{}
	for range 20000 {
		f := make([]byte, rnd.IntN(200))
		if rnd.IntN(10) == 0 {
			f = make([]byte, rnd.IntN(3000))
		}
		for i := range f {
			f[i] = byte(rnd.Uint32())
		}
		at := 12
		for at+6 <= len(f) && rnd.IntN(3) == 0 {
			binary.BigEndian.PutUint16(f[at:], []uint16{0x8100, 0x88a8}[rnd.IntN(2)])
			at += 4
		}
		if at+3 <= len(f) {
			binary.BigEndian.PutUint16(f[at:], []uint16{0x0800, 0x86dd, 0x0806}[rnd.IntN(3)])
			f[at+2] &= 0x0f | byte(rnd.Uint32())
		}
		m := model{rule: rule, past: map[uint32]bool{}}
		want, got := m.queue(f, len(f)), l.queue(f)
		if want != got {
			t.Fatalf("% x: queue %d, the model says %d", f, got, want)
		}
		used[got] = true
	}
	if len(used) != rule.Queues {
		t.Errorf("only queues %v are used", used)
	}
}

// TestNetnsIngress loads the program for a macvtap, which stores its decision in the hash of the
// frame.
func TestNetnsIngress(t *testing.T) {
	l := load(t, steer.Rule{Classes: steer.DefaultClasses(), Queues: 2, Limit: limit}, steer.Ingress)
	f := packet{src: "10.0.0.1", dst: "10.0.0.2", tos: ef, proto: 17, l4: ports(1, 2), size: 100}.frame()
	verdict, err := l.p.Run(&ebpf.RunOptions{Data: f})
	if err != nil || int32(verdict) != -1 {
		t.Errorf("verdict %d, %v", int32(verdict), err)
	}
}

// TestNetnsUnavailable loads a program without capabilities, and expects ErrUnavailable.
func TestNetnsUnavailable(t *testing.T) {
	testenv.NeedRoot(t)
	err := netns.OnThread(func() error {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&hdr, &make([]unix.CapUserData, 2)[0]); err != nil {
			return err
		}
		p, err := steer.Rule{Classes: steer.DefaultClasses(), Queues: 2, Limit: limit}.Load(steer.TAP)
		if err == nil {
			return p.Close()
		}
		return err
	})
	if !errors.Is(err, steer.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

package guard

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// ReadFrame is ReadFrames for one frame.
func (p *policed) ReadFrame(slot []byte) ([]byte, error) {
	ops := [1]vnet.ReadOp{{Slot: slot}}
	p.ReadFrames(ops[:])
	return ops[0].Frame, ops[0].Err
}

// WriteFrame is WriteFrames for one frame.
func (p *policed) WriteFrame(frame []byte) error {
	ops := [1]vnet.WriteOp{{Head: frame}}
	p.WriteFrames(ops[:])
	return ops[0].Err
}

// newPoliced returns a port with the rules of a host, and its queue.
func newPoliced(h *policy.Host, change ...func(*Rules)) (*policed, *queue) {
	r := &Rules{MAC: own, Host: h, Every: true, Receive: h.VLANs, MTU: protocol.MaxMTU, Card: protocol.MaxMTU}
	for _, c := range change {
		c(r)
	}
	q := &queue{}
	p := &policed{queue: q, rules: new(atomic.Pointer[Rules]), taken: new(atomic.Pointer[protocol.MACSet]),
		refused: newRefusals()}
	p.rules.Store(r)
	taken := protocol.NewMACSet([]protocol.MAC{other, own, card})
	p.taken.Store(&taken)
	return p, q
}

func TestToLAN(t *testing.T) {
	open, closed := hostWith("all"), hostWith("5,10-12", "02:00:*")
	further := func(r *Rules) { r.Further = protocol.NewMACSet([]protocol.MAC{other}) }
	for _, tc := range []struct {
		name   string
		host   *policy.Host
		change func(*Rules)
		frame  []byte
		want   verdict
	}{
		{"own address", open, nil, frame(Broadcast, own, 60), pass},
		{"a machine behind the host", open, nil, frame(Broadcast, machine, 60), pass},
		{"another host's", open, nil, frame(Broadcast, other, 60), source},
		{"the card's", open, nil, frame(Broadcast, card, 60), source},
		{"none", open, nil, frame(Broadcast, protocol.MAC{}, 60), source},
		{"a group's", open, nil, frame(Broadcast, protocol.MAC(wanted), 60), source},
		{"all", open, nil, frame(Broadcast, protocol.MAC(Broadcast), 60), source},
		{"a further one", open, further, frame(Broadcast, other, 60), pass},
		{"own address, by policy", closed, nil, frame(Broadcast, own, 60), pass},
		{"not in the policy", closed, nil, frame(Broadcast, machine, 60), source},
		{"in the policy", closed, nil, frame(Broadcast, protocol.MAC{2, 0, 3, 0, 0, 1}, 60), pass},
		{"in the policy, another host's", closed, nil, frame(Broadcast, other, 60), source},
		{"tagged", open, nil, frame(Broadcast, own, 60, 4094), pass},
		{"allowed VLAN", closed, nil, frame(Broadcast, own, 60, 11), pass},
		{"priority and VLAN", closed, nil, frame(Broadcast, own, 60, 0xa00b), pass},
		{"forbidden VLAN", closed, nil, frame(Broadcast, own, 60, 13), vlan},
		{"forbidden VLAN and priority", closed, nil, frame(Broadcast, own, 60, 0xa00d), vlan},
		{"priority only", closed, nil, frame(Broadcast, own, 60, 0xa000), pass},
		{"forbidden VLAN behind a priority", closed, nil, frame(Broadcast, own, 60, 0xa000, 0, 13), vlan},
		{"allowed VLAN behind a priority", closed, nil, frame(Broadcast, own, 60, 0, 5), pass},
		{"VLAN 4095", open, nil, frame(Broadcast, own, 60, 4095), vlan},
		{"cut in its tag", open, nil, frame(Broadcast, own, 60, 5)[:vnet.MinFrame], vlan},
		{"nothing but priorities", open, nil, frame(Broadcast, own, 1000, make([]uint16, 60)...), vlan},
	} {
		p, q := newPoliced(tc.host)
		if tc.change != nil {
			p, q = newPoliced(tc.host, tc.change)
		}
		if err := p.WriteFrame(tc.frame); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		var s protocol.Statistics
		p.count(&s, &Dropped{})
		want := protocol.Statistics{}
		switch tc.want {
		case pass:
			want = protocol.Statistics{TxFrames: 1, TxBytes: uint64(len(tc.frame) - vnet.HdrLen)}
			if len(q.Out) != 1 || !bytes.Equal(q.Out[0], tc.frame) {
				t.Errorf("%s: %d frames written, or another one", tc.name, len(q.Out))
			}
		case source:
			want.TxSource = 1
		default:
			want.TxVLAN = 1
		}
		if s != want {
			t.Errorf("%s: %+v, want %+v", tc.name, s, want)
		}
	}
}

func TestOtherTags(t *testing.T) {
	f := frame(Broadcast, own, 60, 13)
	for _, tpid := range []uint16{0x8100, 0x88a8, 0x9100} {
		f[typeAt], f[typeAt+1] = byte(tpid>>8), byte(tpid)
		if v, ok := vnet.VLAN(f); v != 13 || !ok {
			t.Errorf("TPID %#x: VLAN %d, %t", tpid, v, ok)
		}
	}
}

// TestFrameChanges has the host change a frame after it was checked. The checked frame must be
// written.
func TestFrameChanges(t *testing.T) {
	p, q := newPoliced(hostWith("5"))
	f := frame(Broadcast, own, 1000, 5)
	want := slices.Clone(f)
	q.Tweak = func() {
		copy(f[srcAt:], other[:])
		f[typeAt+3] = 13
	}
	if err := p.WriteFrame(f); err != nil {
		t.Fatal(err)
	}
	if len(q.Out) != 1 || !bytes.Equal(q.Out[0], want) {
		t.Error("the frame that was written is not the one that was judged")
	}
}

// super returns a TCP super-frame of the host, with n bytes and segments of this size.
func super(n int, segment uint16) []byte {
	f := frame(Broadcast, own, n)
	h := vnet.Header{Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, GSOSize: segment, CsumStart: 34, CsumOffset: 16}
	h.Encode(f)
	f[typeAt], f[typeAt+1] = 8, 0
	eth := f[vnet.HdrLen:]
	eth[14], eth[14+9], eth[34+12] = 0x45, 6, 5<<4
	return f
}

// TestHeaderChanges writes frames whose virtio header the host has changed since they were checked
// in its memory. They must be refused.
func TestHeaderChanges(t *testing.T) {
	for name, change := range map[string]func([]byte){
		"segments over the MTU":     func(f []byte) { f[4], f[5] = 0xb5, 5 }, // 1461
		"segments of nothing":       func(f []byte) { f[4], f[5] = 0, 0 },
		"checksum behind the frame": func(f []byte) { f[7] = 0xff },
		"another segmentation":      func(f []byte) { f[1] = vnet.GSOTCPv6 },
		"no segmentation":           func(f []byte) { f[1] = vnet.GSONone }, // exceeds the MTU then
		"unknown flags":             func(f []byte) { f[0] |= 0x80 },
	} {
		p, q := newPoliced(hostWith("all"), func(r *Rules) { r.MTU = 1500 })
		f := super(4000, 1460)
		if err := p.WriteFrame(f); err != nil || len(q.Out) != 1 || !bytes.Equal(q.Out[0], f) {
			t.Fatalf("the good frame: %v", err)
		}
		change(f)
		if err := p.WriteFrame(f); !errors.Is(err, unix.EINVAL) || len(q.Out) != 1 {
			t.Errorf("%s: %v, %d frames written", name, err, len(q.Out))
		}
	}
}

func TestWriteErrors(t *testing.T) {
	p, q := newPoliced(hostWith("all"))
	q.Err = unix.EAGAIN
	if err := p.WriteFrame(frame(Broadcast, own, 60)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a queue that is full: %v", err)
	}
	if err := p.WriteFrame(make([]byte, vnet.MinFrame-1)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a frame that is too short: %v", err)
	}
	var s protocol.Statistics
	if p.count(&s, &Dropped{}); s != (protocol.Statistics{}) {
		t.Errorf("counted %+v", s)
	}
	if p.FD() != 3 || p.WriteFD() != 4 {
		t.Errorf("descriptors %d and %d", p.FD(), p.WriteFD())
	}
}

func TestFromLAN(t *testing.T) {
	h := hostWith("5,6")
	list := func(r *Rules) {
		r.Every = false
		r.Groups = []protocol.Group{{1, 0, 0x5e, 0, 0, 1}, {1, 0, 0x5e, 0, 0, 2}, wanted}
		r.Receive, _ = protocol.ParseVLANs("5")
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		begin bool // passes at the beginning of the session
		later bool // passes with lists
	}{
		{"to the host", frame(own, machine, 60), true, true},
		{"to somebody else", frame(machine, other, 60), true, true}, // left to the LAN interface
		{"to all", frame(Broadcast, machine, 60), true, true},
		{"to a group", frame(wanted, machine, 60), true, true},
		{"to the first group", frame([6]byte{1, 0, 0x5e, 0, 0, 1}, machine, 60), true, true},
		{"to another group", frame([6]byte{1, 0, 0x5e, 0, 0, 3}, machine, 60), true, false},
		{"of a wanted VLAN", frame(own, machine, 60, 5), true, true},
		{"of an allowed VLAN", frame(own, machine, 60, 6), true, false},
		{"of a forbidden VLAN", frame(own, machine, 60, 7), false, false},
		{"of VLAN 4095", frame(own, machine, 60, 4095), false, false},
		{"with a priority", frame(own, machine, 60, 0xe000), true, true},
		{"a forbidden VLAN behind a priority", frame(own, machine, 60, 0, 7), false, false},
	} {
		for _, begin := range []bool{true, false} {
			p, q := newPoliced(h)
			want := tc.begin
			if !begin {
				p, q = newPoliced(h, list)
				want = tc.later
			}
			last := frame(own, machine, 61)
			q.In = [][]byte{tc.frame, last}
			got, err := p.ReadFrame(make([]byte, 2000))
			if err != nil {
				t.Fatal(err)
			}
			if passed := bytes.Equal(got, tc.frame); passed != want || !passed && !bytes.Equal(got, last) {
				t.Errorf("%s, with lists %t: passes %t", tc.name, !begin, passed)
			}
			var s protocol.Statistics
			if p.count(&s, &Dropped{}); (s.RxFiltered == 0) != want {
				t.Errorf("%s, with lists %t: %d filtered", tc.name, !begin, s.RxFiltered)
			}
		}
	}
}

// TestReadEnds reads from a LAN that has only frames that are filtered. A read must not go through
// all of them.
func TestReadEnds(t *testing.T) {
	p, q := newPoliced(hostWith("none"))
	q.In = slices.Repeat([][]byte{frame(own, machine, 60, 7)}, 1000)
	if _, err := p.ReadFrame(make([]byte, 2000)); !errors.Is(err, vnet.ErrFiltered) {
		t.Errorf("%v", err)
	}
	if len(q.In) == 0 {
		t.Error("ReadFrame went through all the noise at once")
	}
}

func TestPolicedAllocs(t *testing.T) {
	p, q := newPoliced(hostWith("5", "02:*"), func(r *Rules) {
		r.Every = false
		for i := range 100 {
			r.Groups = append(r.Groups, protocol.Group{1, 0, 0, 0, 0, byte(i)})
		}
	})
	q.Quiet = true
	out := [][]byte{frame(other, own, 1500, 5), frame(other, machine, 60), frame(other, card, 60),
		frame(other, own, 60, 6)}
	in := [][]byte{frame(own, other, 60), frame([6]byte{1, 0, 0, 0, 0, 77}, other, 60),
		frame([6]byte{1, 0, 0, 0, 0, 177}, other, 60), frame(own, other, 60, 9)}
	reads, writes := []vnet.ReadOp{{Slot: make([]byte, 2000)}}, make([]vnet.WriteOp, 1)
	if n := testing.AllocsPerRun(50, func() {
		for _, f := range out {
			writes[0].Head = f
			p.WriteFrames(writes)
		}
		q.In = in
		for range in {
			p.ReadFrames(reads)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzVLAN(f *testing.F) {
	f.Add(frame(Broadcast, own, 60, 0, 13))
	f.Add(frame(Broadcast, own, 60, 13)[:vnet.MinFrame+3])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < vnet.MinFrame {
			return
		}
		v, ok := vnet.VLAN(b)
		if v > 4095 || v != 0 && !ok {
			t.Errorf("VLAN %d, %t", v, ok)
		}
		// Bytes behind the tags do not matter.
		if w, okay := vnet.VLAN(append(slices.Clone(b), 0x81, 0, 0, 13)); ok && (w != v || !okay) {
			t.Errorf("VLAN %d, longer %d", v, w)
		}
	})
}

func BenchmarkPoliced(b *testing.B) {
	for name, f := range map[string][]byte{"own": frame(other, own, 1500), "behind": frame(other, machine, 1500)} {
		b.Run(name, func(b *testing.B) {
			p, q := newPoliced(hostWith("all"))
			q.Quiet = true
			b.ReportAllocs()
			for b.Loop() {
				_ = p.WriteFrame(f)
			}
		})
	}
}

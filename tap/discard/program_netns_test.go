package discard

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/splitnic/splitnic/internal/testenv"
)

// length is the length of the queue in these tests, in frames.
const length = 512

// never is a patience that lasts longer than any test, in ns.
const never = 1 << 62

func load(t testing.TB, cfg Config) *Filter {
	t.Helper()
	testenv.NeedRoot(t)
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// judge runs the program on a frame for queue 0 and reports whether it passes.
func (f *Filter) judge(t testing.TB, cfg Config, frame []byte) bool {
	t.Helper()
	data := frame
	if !cfg.Ingress {
		// The kernel's test run removes an Ethernet header, as from a received frame. An
		// outgoing frame still has the Ethernet header in the program.
		data = append(append(make([]byte, 12), frame[12], frame[13]), frame...)
	}
	before := f.Dropped()
	got, err := f.program.Run(&ebpf.RunOptions{Data: data})
	if err != nil {
		t.Fatalf("% x: %v", frame, err)
	}
	counted := f.Dropped() - before
	if cfg.Ingress {
		if got != 2 && int32(got) != -1 {
			t.Fatalf("verdict %d", int32(got))
		}
		if counted > 1 || counted == 1 != (got == 2) {
			t.Errorf("verdict %d, and %d frames counted as dropped", int32(got), counted)
		}
		return got != 2
	}
	if counted != 0 {
		t.Errorf("%d frames counted as dropped: a TAP device counts them", counted)
	}
	if got != 0 && int(got) < len(frame) {
		t.Fatalf("%d bytes of %d pass", got, len(frame))
	}
	return got != 0
}

// wait sets the counters to n waiting frames in queue 0.
func (f *Filter) wait(n int) {
	m := f.Meter(0)
	m.passed.Store(m.read.Load() + uint64(n))
}

// packet is an IP packet, or a fragment of one.
type packet struct {
	six, tagged, again bool // IPv6; with a VLAN tag; with two
	id, offset         int  // offset in units of 8 bytes
	more               bool // fragments follow
	proto              byte
	host               byte // last byte of the source address
}

func (p packet) kind() int {
	switch {
	case p.offset > 0:
		return further
	case p.more:
		return first
	}
	return whole
}

func (p packet) frame() []byte {
	f := make([]byte, 12, 100)
	if p.again {
		f = append(f, 0x88, 0xa8, 0, 7)
	}
	if p.tagged || p.again {
		f = append(f, 0x81, 0, 0, 5)
	}
	if p.six {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 44, 64)
		f = append(f, append([]byte{0xfd}, append(make([]byte, 14), p.host)...)...)
		f = append(f, append([]byte{0xfd}, append(make([]byte, 14), 1)...)...)
		word := uint16(p.offset << 3)
		if p.more {
			word |= 1
		}
		f = append(f, p.proto, 0)
		f = binary.BigEndian.AppendUint16(f, word)
		f = binary.BigEndian.AppendUint32(f, uint32(p.id))
	} else {
		f = append(f, 8, 0, 0x45, 0, 0, 36)
		f = binary.BigEndian.AppendUint16(f, uint16(p.id))
		word := uint16(p.offset)
		if p.more {
			word |= 0x2000
		}
		f = binary.BigEndian.AppendUint16(f, word)
		f = append(f, 64, p.proto, 0, 0, 10, 0, 0, p.host, 10, 0, 0, 1)
	}
	return append(f, make([]byte, 16)...)
}

// TestNetnsVerdicts checks the verdict for each kind of frame, by the number of waiting frames.
func TestNetnsVerdicts(t *testing.T) {
	const limit = length - length/4
	for _, ingress := range []bool{false, true} {
		for _, p := range []packet{
			{}, {tagged: true}, {again: true}, {six: true}, {six: true, tagged: true}, {six: true, again: true},
		} {
			cfg := Config{Ingress: ingress, Queues: 1, Length: length, Patience: never}
			f := load(t, cfg)
			p.proto = 17
			id := 0
			want := func(what string, pass bool) {
				t.Helper()
				if got := f.judge(t, cfg, p.frame()); got != pass {
					t.Errorf("ingress %t, %+v, %s: passes: %t", ingress, p, what, got)
				}
			}
			fragment := func(offset int, more bool) { p.offset, p.more = offset, more }
			fresh := func() { id++; p.id = id; fragment(0, true) }

			for _, n := range []int{-5, 0, limit - 1} {
				fresh()
				f.wait(n)
				want("first", true)
				f.wait(length - 1)
				fragment(100, true)
				want("second, into the reserve", true)
				f.wait(length - 1)
				fragment(200, false)
				want("last, into the reserve", true)
				fragment(0, false)
				f.wait(n)
				want("whole", true)
			}
			f.wait(limit)
			fragment(0, false)
			want("whole, with the reserve left", false)
			fresh()
			want("first, with the reserve left", false)
			f.wait(0)
			fragment(100, true)
			want("the rest of one that was dropped", false)
			fragment(200, false)
			want("the end of one that was dropped", false)
			p.host++
			want("that of another sender", true)
			p.host--
			p.proto = 1
			if !p.six { // of IPv6, only the protocol number of the first fragment counts
				want("that of another protocol", true)
			}
			p.proto = 17
			fragment(0, true)
			want("the same datagram anew", true)
			fragment(100, true)
			want("and its rest", true)
			f.wait(length)
			fragment(200, true)
			want("what the queue has no room for", false)
			f.wait(0)
			fragment(300, false)
			want("what comes behind that", false)
			if n := f.Meter(0).Waiting(); n != 0 {
				t.Errorf("%d frames wait, although none has passed", n)
			}
		}
	}
}

// TestNetnsPatience expects frames to pass again after the patience, if the reader has ended or does
// not count what it reads.
func TestNetnsPatience(t *testing.T) {
	for _, tc := range []struct {
		patience time.Duration
		pass     bool
	}{{never, false}, {1, true}} {
		cfg := Config{Queues: 1, Length: length, Patience: tc.patience}
		f := load(t, cfg)
		f.wait(10 * length)
		if f.judge(t, cfg, packet{}.frame()) {
			t.Errorf("patience %v: the first frame passes, before anybody could read", tc.patience)
		}
		f.Meter(0).Took(7)
		f.wait(10 * length)
		for i, p := range []packet{{}, {more: true}, {offset: 100, more: true}} {
			f.judge(t, cfg, packet{}.frame()) // the first run only records the time
			if got := f.judge(t, cfg, p.frame()); got != tc.pass {
				t.Errorf("patience %v, frame %d: passes: %t", tc.patience, i, got)
			}
			f.Meter(0).Took(1) // the reader counts again
			if f.judge(t, cfg, packet{id: 9, more: true}.frame()) {
				t.Errorf("patience %v, frame %d: the next one passes", tc.patience, i)
			}
		}
	}
}

// TestNetnsModel compares the program with a model of it over random frames, some of them truncated.
func TestNetnsModel(t *testing.T) {
	for _, ingress := range []bool{false, true} {
		seed := uint64(time.Now().UnixNano())
		rnd := rand.New(rand.NewPCG(seed, 0))
		cfg := Config{Ingress: ingress, Queues: 1, Length: length, Patience: never}
		f := load(t, cfg)
		m := f.Meter(0)
		// Datagrams with different entries of the table, found by trying.
		var many []packet
		places := map[int]bool{}
		for i := 0; len(many) < 16; i++ {
			p := packet{six: i&1 != 0, tagged: i&2 != 0, again: i&4 != 0, id: i, proto: 17, host: byte(i)}
			if at := f.place(t, cfg, p); !places[at] {
				places[at] = true
				many = append(many, p)
			}
		}
		dropped := map[int]bool{}
		for i := range 20000 {
			n := rnd.IntN(len(many))
			p := many[n]
			p.offset, p.more = rnd.IntN(3)*100, rnd.IntN(2) == 0
			frame := p.frame()
			kind := p.kind()
			if need := len(frame) - 16; rnd.IntN(8) == 0 { // need: all bytes up to the end of the last header
				least := 14
				switch { // the kernel refuses shorter frames if it recognizes IP
				case p.tagged || p.again:
				case p.six:
					least += 40
				default:
					least += 20
				}
				frame = frame[:least+rnd.IntN(len(frame)-least)]
				if len(frame) < need {
					kind = whole
				}
			}
			waiting := rnd.IntN(2*length) - length/2
			f.wait(waiting)
			want := waiting < length-length/4
			switch kind {
			case first:
				dropped[n] = !want
			case further:
				dropped[n] = dropped[n] || waiting >= length
				want = !dropped[n]
			}
			if got := f.judge(t, cfg, frame); got != want {
				t.Fatalf("seed %d, ingress %t, frame %d: %+v, %d bytes, %d waiting: passes: %t",
					seed, ingress, i, p, len(frame), waiting, got)
			}
			passed := 0
			if want {
				passed = 1
			}
			if got := m.Waiting(); got != waiting+passed {
				t.Fatalf("seed %d: %d waiting after %d and %d more", seed, got, waiting, passed)
			}
		}
	}
}

// place returns the index of a datagram in the table: the entry that changes when the program drops
// the first fragment.
func (f *Filter) place(t testing.TB, cfg Config, p packet) int {
	t.Helper()
	before := f.entries(t)
	p.offset, p.more = 0, true
	f.wait(length)
	f.judge(t, cfg, p.frame())
	after := f.entries(t)
	for i := range after {
		if after[i] != before[i] {
			f.wait(0)
			f.judge(t, cfg, p.frame()) // passes, so that the datagram is not dropped any longer
			return i
		}
	}
	t.Fatalf("%+v has no entry", p)
	return 0
}

// entries returns the entries of the program's table.
func (f *Filter) entries(t testing.TB) []uint32 {
	t.Helper()
	info, err := f.program.Info()
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if m.ValueSize() != 4*table || m.Flags() != 0 {
			continue
		}
		var out [table]uint32
		if err := m.Lookup(uint32(0), &out); err != nil {
			t.Fatal(err)
		}
		return out[:]
	}
	t.Fatal("no table")
	return nil
}

// TestNetnsMeter expects wrong counts to be corrected when the reader has found the queue empty.
func TestNetnsMeter(t *testing.T) {
	f := load(t, Config{Queues: 2, Length: length})
	a, b := f.Meter(0), f.Meter(1)
	f.wait(100)
	a.Took(40)
	if n := a.Waiting(); n != 60 {
		t.Errorf("%d waiting", n)
	}
	a.Took(200)
	if n := a.Waiting(); n != -140 {
		t.Errorf("%d waiting, which were not counted", n)
	}
	a.Emptied(a.Passed())
	if n := a.Waiting(); n != 0 || b.Waiting() != 0 {
		t.Errorf("%d waiting in an empty queue, and %d in the other one", n, b.Waiting())
	}
	for _, lost := range []int{0, 30} {
		f.wait(lost)
		passed := a.Passed()
		f.wait(lost + 100) // 100 more frames come after the reader has found the queue empty
		a.Emptied(passed)
		if n := a.Waiting(); n != 100 {
			t.Errorf("%d waiting of 100 that came behind %d that were lost", n, lost)
		}
		f.wait(0)
	}
	var none *Meter
	none.Took(1)
	none.Emptied(none.Passed())
	if !none.InStep() {
		t.Error("nothing has passed, and it was not read")
	}
}

func TestNetnsRefused(t *testing.T) {
	testenv.NeedRoot(t)
	for _, cfg := range []Config{
		{Queues: 0, Length: length}, {Queues: 257, Length: length},
		{Queues: 1, Length: shortest - 1}, {Queues: 1, Length: length, Patience: -1},
	} {
		f, err := New(cfg)
		if err == nil {
			t.Errorf("%+v was taken: %v", cfg, f.Close())
		}
		if short := cfg.Length < shortest; errors.Is(err, errUnavailable) != short {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

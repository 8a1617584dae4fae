package vhostuser

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/vnet"
	"github.com/splitnic/splitnic/vnet/frametest"
)

func ptr(b []byte) unsafe.Pointer { return unsafe.Pointer(&b[0]) }

const modern = featVersion1 | featMrgRxbuf | featIndirect | featCsum | featGuestCsum | featHostTSO4 | featGuestTSO4

// kinds has the features of each form of ring.
var kinds = map[string]features{
	"split":                   modern,
	"split with event index":  modern | featEventIdx,
	"packed":                  modern | featPacked,
	"packed with event index": modern | featPacked | featEventIdx,
}

func randomFrame(r *rand.Rand) []byte {
	f := make([]byte, vnet.MinFrame+r.IntN(3000))
	if r.IntN(20) == 0 {
		f = make([]byte, vnet.MinFrame+r.IntN(vnet.MaxFrame-vnet.MinFrame))
	}
	frametest.Fill(f[vnet.HdrLen:], r.Uint64())
	return f
}

func readOps(n int) []vnet.ReadOp {
	ops := make([]vnet.ReadOp, n)
	for i := range ops {
		ops[i].Slot = make([]byte, vnet.MaxFrame+1)
	}
	return ops
}

// TestTransmit transmits frames of a driver in chains of all kinds. The driver's memory is in one
// region, or in several regions with their edges within buffers.
func TestTransmit(t *testing.T) {
	for name, feats := range kinds {
		for _, regions := range []int{1, 4} {
			t.Run(fmt.Sprint(name, " ", regions), func(t *testing.T) {
				g, r := newGuest(t, feats, 1, regions), rand.New(rand.NewPCG(1, 2))
				ops := readOps(32)
				for range 300 {
					var want [][]byte
					for range 1 + r.IntN(8) {
						f := randomFrame(r)
						raw := append(append(f[:vnet.HdrLen:vnet.HdrLen], 0xaa, 0xbb), f[vnet.HdrLen:]...)
						bufs := g.pieces(r, len(raw), 1+r.IntN(8))
						for _, b := range bufs {
							raw = raw[copy(g.at(b), raw):]
						}
						g.add(bufs, r.IntN(2) == 0)
						want = append(want, f)
					}
					for len(want) > 0 {
						n := g.v.read(ops, nil, r.IntN(2) == 0)
						if err := g.ended(); n == 0 || err != nil {
							t.Fatalf("%d frames are not read: %v", len(want), err)
						}
						for i := range ops[:n] {
							if ops[i].Err != nil || !bytes.Equal(ops[i].Frame, want[i]) {
								t.Fatalf("a frame of %d bytes is read as %d: %v", len(want[i]), len(ops[i].Frame), ops[i].Err)
							}
							if got, ok := g.used(); !ok || got != 0 {
								t.Fatalf("its chain is not given back: %d bytes, %t", got, ok)
							}
						}
						want = want[n:]
					}
					if g.v.read(ops, nil, true) != 0 {
						t.Fatal("there is a frame more")
					}
				}
			})
		}
	}
}

// TestTransmitMarkedWritable transmits a frame of a driver in an indirect table of a
// packed ring. The first descriptor, for the header, has the flag of a writable buffer,
// as with DPDK. It expects the flag to be ignored there, but not in the ring itself, nor
// in a ring on which the driver receives.
func TestTransmitMarkedWritable(t *testing.T) {
	const feats = modern | featPacked
	mark := func(g *guest, at int) {
		b := g.mem[at+14:]
		binary.LittleEndian.PutUint16(b, binary.LittleEndian.Uint16(b)^descWrite)
	}
	raw := make([]byte, 12+1000)
	for i := 12; i < len(raw); i++ {
		raw[i] = byte(i)
	}
	g := newGuest(t, feats, 1, 1)
	bufs := []buffer{g.alloc(12), g.alloc(600), g.alloc(400)}
	rest := raw
	for _, b := range bufs {
		rest = rest[copy(g.at(b), rest):]
	}
	g.add(bufs, true)
	mark(g, tablesAt)
	ops := readOps(1)
	if n := g.v.read(ops, nil, true); n != 1 || ops[0].Err != nil || !bytes.Equal(ops[0].Frame[vnet.HdrLen:], raw[12:]) {
		t.Errorf("%d frames are read, %d bytes, %v: %v", n, len(ops[0].Frame), ops[0].Err, g.ended())
	}
	if _, ok := g.used(); !ok {
		t.Error("the chain is not given back")
	}

	g = newGuest(t, feats, 1, 1)
	g.add([]buffer{g.alloc(1000)}, false)
	mark(g, 0)
	if n := g.v.read(ops, nil, true); n != 0 || !errors.Is(g.ended(), ErrRing) {
		t.Errorf("%d frames are read from a buffer that is to be written", n)
	}

	g = newGuest(t, feats, 0, 1)
	g.add([]buffer{g.alloc(1000)}, true)
	mark(g, tablesAt)
	f := make([]byte, vnet.MinFrame+60)
	g.v.write([]vnet.WriteOp{{Head: f}}, true)
	if !errors.Is(g.ended(), ErrRing) {
		t.Error("a frame is written to a buffer that is to be read")
	}
}

// TestReceive writes frames to a driver, each to one buffer or to several.
func TestReceive(t *testing.T) {
	for name, feats := range kinds {
		for _, regions := range []int{1, 4} {
			t.Run(fmt.Sprint(name, " ", regions), func(t *testing.T) {
				g, r := newGuest(t, feats, 0, regions), rand.New(rand.NewPCG(1, 2))
				var chains [][]buffer
				for range 400 {
					for len(chains) < 7 {
						bufs := g.pieces(r, 12+r.IntN(3000), 1+r.IntN(8))
						if r.IntN(4) == 0 {
							bufs = g.pieces(r, 40000, 3)
						}
						g.add(bufs, r.IntN(2) == 0)
						chains = append(chains, bufs)
					}
					f := randomFrame(r)
					head := vnet.MinFrame + r.IntN(len(f)-vnet.MinFrame+1)
					ops := []vnet.WriteOp{{Head: f[:head], Rest: f[head:]}}
					n := g.v.write(ops, true)
					if err := g.ended(); err != nil || ops[0].Err != nil {
						t.Fatal(err, ops[0].Err)
					}
					room := 0
					for _, c := range chains {
						for _, b := range c {
							room += int(b.len)
						}
					}
					if n == 0 {
						if room >= len(f)+2 {
							t.Fatalf("a frame of %d bytes does not fit %d", len(f), room)
						}
						if _, ok := g.used(); ok {
							t.Fatal("a buffer is given back without a frame")
						}
						for len(chains) < 60 && room < len(f)+2 {
							bufs := g.pieces(r, 20000, 3)
							if g.chainsLeft(chains) < len(bufs) {
								t.Fatal("the ring is too small for this test")
							}
							g.add(bufs, true)
							chains, room = append(chains, bufs), room+20000
						}
						if g.v.write(ops, false) != 1 {
							t.Fatal("there is room, and the frame does not come")
						}
					}
					var got []byte
					count := 1
					for i := 0; i < count; i++ {
						size, ok := g.used()
						if !ok {
							t.Fatalf("buffer %d of %d is not given back", i, count)
						}
						for _, b := range chains[0] {
							k := min(size, int(b.len))
							got = append(got, g.at(b)[:k]...)
							size -= k
						}
						chains = chains[1:]
						if i == 0 {
							count = int(binary.LittleEndian.Uint16(got[10:]))
						}
					}
					if want := append(append(f[:10:10], got[10:12]...), f[10:]...); !bytes.Equal(got, want) {
						t.Fatalf("a frame of %d bytes comes as %d in %d buffers", len(want), len(got), count)
					}
				}
			})
		}
	}
}

// BenchmarkReceive writes frames of 64 bytes to buffers of a driver. It reports the time of one
// frame without the driver's share.
func BenchmarkReceive(b *testing.B) {
	for name, feats := range kinds {
		b.Run(name, func(b *testing.B) {
			g := newGuest(b, feats, 0, 1)
			frame, ops := make([]byte, vnet.HdrLen+64), make([]vnet.WriteOp, ringSize/2)
			for i := range ops {
				ops[i].Head = frame
			}
			took := time.Duration(0)
			for range b.N {
				for i := range ops {
					g.add([]buffer{{guestBase + buffersAt + uint64(i)*2048, 1526}}, false)
				}
				began := time.Now()
				n := g.v.write(ops, false)
				took += time.Since(began)
				if n != len(ops) {
					b.Fatal(n, g.ended())
				}
				for range ops {
					g.used()
				}
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*len(ops)), "ns/frame")
		})
	}
}

// chainsLeft returns the number of free descriptors.
func (g *guest) chainsLeft(chains [][]buffer) int {
	n := g.size
	for _, c := range chains {
		n -= len(c)
	}
	return n
}

// TestHostileRing breaks each rule as a driver. It expects the ring of that driver to end with an
// error.
func TestHostileRing(t *testing.T) {
	good := buffer{guestBase + buffersAt, 100}
	word := func(index, flags uint16) uint32 { return uint32(index)<<16 | uint32(flags) }
	for name, c := range map[string]struct {
		feats  features
		number int
		does   func(g *guest)
		want   string
	}{
		"index": {modern, 1, func(g *guest) { store32At(g, availAt, word(ringSize+1, 0)) }, "65 chains are available"},
		"head": {modern, 1, func(g *guest) {
			g.put16(availAt+4, ringSize)
			store32At(g, availAt, word(1, 0))
		}, "descriptor 64 of a ring of 64"},
		"loop": {modern, 1, func(g *guest) {
			g.descriptor(0, good, descNext, 0)
			store32At(g, availAt, word(1, 0))
		}, "more than 64 descriptors"},
		"next": {modern, 1, func(g *guest) {
			g.descriptor(0, good, descNext, 0xffff)
			store32At(g, availAt, word(1, 0))
		}, "descriptor 65535"},
		"address":              {modern, 1, func(g *guest) { g.add([]buffer{{1, 100}}, false) }, "where there is no memory"},
		"length":               {modern, 1, func(g *guest) { g.add([]buffer{{guestBase + guestSize - 1, 100}}, false) }, "no memory"},
		"end of all addresses": {modern, 1, func(g *guest) { g.add([]buffer{{1<<64 - 8, 100}}, false) }, "no memory"},
		"no header":            {modern, 1, func(g *guest) { g.add([]buffer{{good.addr, 11}}, false) }, "a frame of 11 bytes"},
		"empty":                {modern, 0, func(g *guest) { g.add([]buffer{{good.addr, 0}}, false) }, "a buffer of 0 bytes"},
		"direction": {modern, 1, func(g *guest) {
			g.descriptor(0, good, descWrite, 0)
			store32At(g, availAt, word(1, 0))
		}, "to be written where it is to be read"},
		"not to be written": {modern, 0, func(g *guest) {
			g.descriptor(0, good, 0, 0)
			store32At(g, availAt, word(1, 0))
		}, "to be written where it is to be read"},
		"indirect in a chain": {modern, 1, func(g *guest) {
			g.descriptor(0, good, descNext, 1)
			g.descriptor(16, good, descIndirect, 0)
			store32At(g, availAt, word(1, 0))
		}, "within a chain"},
		"indirect and next": {modern, 1, func(g *guest) {
			g.descriptor(0, buffer{good.addr, 16}, descIndirect|descNext, 1)
			store32At(g, availAt, word(1, 0))
		}, "within a chain"},
		"indirect in indirect": {modern, 1, func(g *guest) {
			g.descriptor(tablesAt, good, descIndirect, 0)
			g.descriptor(0, buffer{guestBase + tablesAt, 16}, descIndirect, 0)
			store32At(g, availAt, word(1, 0))
		}, "in another"},
		"indirect loop": {modern, 1, func(g *guest) {
			g.descriptor(tablesAt, good, descNext, 0)
			g.descriptor(0, buffer{guestBase + tablesAt, 16}, descIndirect, 0)
			store32At(g, availAt, word(1, 0))
		}, "more than 64 descriptors"},
		"indirect next": {modern, 1, func(g *guest) {
			g.descriptor(tablesAt, good, descNext, 1)
			g.descriptor(0, buffer{guestBase + tablesAt, 16}, descIndirect, 0)
			store32At(g, availAt, word(1, 0))
		}, "descriptor 1 of an indirect table of 1"},
		"table's length": {modern, 1, func(g *guest) {
			g.descriptor(0, buffer{guestBase + tablesAt, 17}, descIndirect, 0)
			store32At(g, availAt, word(1, 0))
		}, "an indirect table of 17 bytes"},
		"table's address": {modern, 1, func(g *guest) {
			g.descriptor(0, buffer{16, 16}, descIndirect, 0)
			store32At(g, availAt, word(1, 0))
		}, "an indirect table at 0x10"},
		"indirect not negotiated": {modern &^ featIndirect, 1, func(g *guest) { g.add([]buffer{good}, true) }, "not negotiated"},
		"packed, address":         {modern | featPacked, 1, func(g *guest) { g.add([]buffer{{1, 100}}, false) }, "no memory"},
		"packed, loop": {modern | featPacked, 1, func(g *guest) {
			for i := range ringSize {
				g.descriptor(16*i, good, 0, descAvail|descNext)
			}
		}, "more than 64 descriptors"},
		"packed, indirect in a chain": {modern | featPacked, 1, func(g *guest) {
			g.descriptor(0, good, 0, descAvail|descNext)
			g.descriptor(16, good, 0, descAvail|descIndirect)
		}, "within a chain"},
		"truncated": {modern, 1, func(g *guest) {
			g.add([]buffer{good}, false)
			if err := unix.Ftruncate(g.fd, 0); err != nil {
				g.t.Fatal(err)
			}
		}, "its file was truncated"},
		"truncated under a buffer": {modern, 0, func(g *guest) {
			g.add([]buffer{good}, false)
			if err := unix.Ftruncate(g.fd, buffersAt); err != nil {
				g.t.Fatal(err)
			}
		}, "its file was truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, c.feats, c.number, 1)
			c.does(g)
			defer g.bound()()
			ops := []vnet.WriteOp{{Head: make([]byte, 60)}}
			if c.number == 1 {
				g.v.read(readOps(4), nil, true)
				if n := g.v.read(readOps(4), nil, true); n != 0 {
					t.Errorf("%d frames are read", n)
				}
			} else if n := g.v.write(ops, true) + g.v.write(ops, true); n == 0 || ops[0].Err == nil {
				t.Errorf("%d frames are done with: %v", n, ops[0].Err)
			}
			err := g.ended()
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrRing) && !errors.Is(err, ErrFrontEnd) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil {
				testenv.Explained(t, err.Error())
			}
			if g.v.running.Load() {
				t.Error("the ring runs")
			}
		})
	}
}

// TestTakenTwice has the driver of a packed ring say that the first descriptor is available again while all
// of them are taken. The device must not take it twice.
func TestTakenTwice(t *testing.T) {
	g := newGuest(t, modern|featPacked, 1, 1)
	for range ringSize {
		g.add([]buffer{g.alloc(100)}, false)
	}
	r := g.v.ring
	for i := range ringSize {
		if ok, err := r.next(); !ok || err != nil {
			t.Fatalf("chain %d: %t, %v", i, ok, err)
		}
	}
	g.descriptor(0, g.alloc(100), 0, wrapFlags(1))
	if ok, err := r.next(); ok || err != nil {
		t.Errorf("%d of %d chains are taken: %v", ringSize+1, ringSize, err)
	}
}

// bound limits the memory that a chain without end can use up if the device follows it: it then
// removes all descriptors, and the test fails. The caller calls stop after the device has read.
func (g *guest) bound() (stop func()) {
	const most = 64 << 20
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before, done := sample[0].Value.Uint64(), make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if metrics.Read(sample); sample[0].Value.Uint64()-before > most {
				clear(g.mem[:buffersAt])
				g.t.Errorf("a chain takes more than %d bytes", most)
				return
			}
		}
	})
	return func() { close(done); watching.Wait() }
}

// TestCountedAndFailed breaks a rule as a driver after two valid frames in one burst. It expects
// the two frames to be counted.
func TestCountedAndFailed(t *testing.T) {
	for name, feats := range kinds {
		for number := range 2 {
			t.Run(fmt.Sprint(name, " ", number), func(t *testing.T) {
				g := newGuest(t, feats, number, 1)
				for range 2 {
					g.add([]buffer{g.alloc(112)}, false)
				}
				g.add([]buffer{{1, 112}}, false)
				frame, want := make([]byte, 110), 2
				writes := []vnet.WriteOp{{Head: frame}, {Head: frame}, {Head: frame}, {Head: frame}}
				n := 0
				if number == 1 {
					n = g.v.read(readOps(4), nil, true)
				} else if n, want = g.v.write(writes, true), 4; writes[1].Err != nil || !errors.Is(writes[2].Err, errDown) {
					t.Errorf("%v, %v", writes[1].Err, writes[2].Err)
				}
				frames, bytes := g.v.count.frames.Load(), g.v.count.bytes.Load()
				if n != want || !errors.Is(g.ended(), ErrRing) || frames != 2 || bytes != 220 {
					t.Errorf("%d frames are done with, and %d with %d bytes counted", n, frames, bytes)
				}
			})
		}
	}
}

// TestRacingGuest writes to all of a driver's memory while frames are moved. This can only harm the
// driver itself.
func TestRacingGuest(t *testing.T) {
	for name, feats := range kinds {
		for number := range 2 {
			t.Run(fmt.Sprint(name, " ", number), func(t *testing.T) {
				g, r := newGuest(t, feats, number, 2), rand.New(rand.NewPCG(3, 4))
				stop := make(chan struct{})
				var racer sync.WaitGroup
				racer.Go(func() {
					r := rand.New(rand.NewPCG(5, 6))
					for {
						select {
						case <-stop:
							return
						default:
						}
						for range 100 {
							scribble(g, r)
						}
					}
				})
				v, ops, ends := *g.v.addr, readOps(8), 0
				m, b := g.v.ring.base().mem, newBorrower(g, len(ops))
				for i := 0; i < 5000 || ends < 100; i++ { // a burst without frames is short
					if g.v.ring == nil { // connect the next front end
						ends++
						g.ended()
						g.v.addr, g.v.start = &v, 1<<15
						if err := g.v.begin(m, feats); err != nil {
							t.Fatal(err)
						}
						g.v.running.Store(true)
					}
					if number == 1 {
						b.read(t, g, ops, i%2 == 0)
						b.giveBack(g, r.IntN(4))
					} else {
						g.v.write([]vnet.WriteOp{{Head: randomFrame(r)}, {Head: make([]byte, 80)}}, i%2 == 0)
					}
				}
				close(stop)
				racer.Wait()
				t.Logf("it was ended %d times", ends)
			})
		}
	}
}

// scribble changes a random part of the driver's memory.
func scribble(g *guest, r *rand.Rand) {
	b := buffer{guestBase + buffersAt + uint64(r.IntN(3000)), uint32(r.IntN(3000))}
	switch at := 16 * r.IntN(ringSize); r.IntN(5) {
	case 0:
		g.descriptor(at, b, uint16(r.IntN(8))&^descIndirect|descWrite*uint16(1-g.v.number), uint16(r.IntN(ringSize)))
	case 1:
		g.descriptor(at, b, uint16(r.IntN(ringSize)), uint16(r.Uint32()))
	case 2:
		g.put16(availAt+4+2*r.IntN(ringSize), uint16(r.IntN(ringSize+1)))
	case 3:
		store32At(g, availAt, r.Uint32())
	case 4:
		store32At(g, usedAt, load32(ptr(g.mem[availAt:]))-uint32(r.IntN(64))<<16)
	}
}

// TestPortsDoNotAllocate expects no allocation when frames are moved.
func TestPortsDoNotAllocate(t *testing.T) {
	for name, feats := range kinds {
		out, in := newGuest(t, feats, 1, 1), newGuest(t, feats, 0, 1)
		ops, frame := readOps(8), make([]byte, 100)
		writes := []vnet.WriteOp{{Head: frame}, {Head: frame}}
		bufs := []buffer{{guestBase + buffersAt, 200}}
		if n := testing.AllocsPerRun(200, func() {
			for range 2 {
				out.add(bufs, false)
				in.add(bufs, false)
			}
			if out.v.read(ops, nil, false) != 2 || in.v.write(writes, false) != 2 || out.v.read(ops, nil, true) != 0 {
				t.Fatal(out.ended(), in.ended())
			}
			out.used()
			out.used()
			in.used()
			in.used()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func fuzzRing(f *testing.F, feats features) {
	f.Add([]byte{0, 0, 0, 0, 1, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, program []byte, number uint8) {
		g := newGuest(t, feats, int(number%2), 2)
		b, ops := newBorrower(g, 2), readOps(2)
		for i := 0; i+6 <= len(program) && g.v.ring != nil; i += 6 {
			at := binary.LittleEndian.Uint16(program[i:])
			area := []int{0, availAt, usedAt, tablesAt}[program[i+2]%4]
			copy(g.mem[area+int(at%2048):], program[i+3:i+6])
			if number%2 == 1 {
				b.read(t, g, ops, true)
				b.giveBack(g, int(program[i]%3))
			} else {
				g.v.write([]vnet.WriteOp{{Head: make([]byte, 60)}}, true)
			}
		}
	})
}

func FuzzSplitRing(f *testing.F)  { fuzzRing(f, modern|featEventIdx) }
func FuzzPackedRing(f *testing.F) { fuzzRing(f, modern|featEventIdx|featPacked) }

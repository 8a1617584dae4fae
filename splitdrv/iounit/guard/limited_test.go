package guard

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// limited returns a change of rules that limits the rates in both directions, with clock h.
func limited(rate int64, h *hand) func(*Rules) {
	return func(r *Rules) {
		r.tx, r.rx = newBucket(bounds{bits: rate}, h.now), newBucket(bounds{bits: rate}, h.now)
	}
}

// TestLimitedWrites writes batches for a host with a rate limit, to a queue that is often full. Each
// frame must be written once, in order, and not too early.
func TestLimitedWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 100 {
		const rate = 100e6
		h := &hand{}
		p, q := newPoliced(hostWith("all"), limited(rate, h))
		var frames, pass [][]byte
		var want protocol.Statistics
		for i := range 1 + random.IntN(300) {
			f := frame(Broadcast, own, 60+random.IntN(3000))
			f[len(f)-1] = byte(i)
			if random.IntN(5) == 0 {
				copy(f[srcAt:], other[:])
				want.TxSource++
			} else {
				pass = append(pass, f)
				want.TxFrames++
				want.TxBytes += uint64(len(f) - vnet.HdrLen)
			}
			frames = append(frames, f)
		}
		held := 0
		for ops := batch(random, frames...); len(ops) > 0; {
			q.Room = random.IntN(80)
			n := p.WriteFrames(ops)
			var s protocol.Statistics
			p.count(&s, &Dropped{})
			if max := allowed(rate, h.at) + 3100; float64(s.TxBytes) > max {
				t.Fatalf("round %d: %d bytes after %v, at most %.0f", round, s.TxBytes, h.at, max)
			}
			if n < len(ops) {
				if !errors.Is(ops[n].Err, unix.EAGAIN) {
					t.Fatalf("%d of %d frames done with, %v", n, len(ops), ops[n].Err)
				}
				if d := p.WriteHold(); d > 0 {
					held++
					h.at += d
				}
			}
			ops = ops[n:]
		}
		var got protocol.Statistics
		if p.count(&got, &Dropped{}); got != want {
			t.Fatalf("round %d: counted %+v, want %+v", round, got, want)
		}
		if !slices.EqualFunc(q.Out, pass, bytes.Equal) {
			t.Fatalf("round %d: %d frames written, of them %d should be", round, len(q.Out), len(pass))
		}
		if len(pass) > 0 && held == 0 {
			t.Fatalf("round %d: nothing was held back", round)
		}
	}
}

// TestLimitedFull writes many frames to a queue that takes one. Only this one may be charged.
func TestLimitedFull(t *testing.T) {
	h := &hand{}
	p, q := newPoliced(hostWith("all"), limited(1e9, h))
	h.at = time.Hour
	b := p.rules.Load().tx
	b.wait(false) // fills the bucket
	q.Room = 1
	f := frame(Broadcast, own, 1000)
	if n := p.WriteFrames(batch(rand.New(rand.NewPCG(1, 2)), slices.Repeat([][]byte{f}, 10)...)); n != 1 ||
		p.WriteHold() != 0 {
		t.Errorf("%d frames written, the rest held back for %v", n, p.WriteHold())
	}
	if got := b.bits.burst - b.bits.now; got != frameCost(f, len(f)).bits*perUnit {
		t.Errorf("%d bits are gone for %d", got/perUnit, frameCost(f, len(f)).bits)
	}
}

// TestLimitedReads reads frames, in batches and one by one. At most one frame more may be read than
// there is room for, and filtered frames must not count.
func TestLimitedReads(t *testing.T) {
	for _, n := range []int{1, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			const rate = 1e9
			h := &hand{}
			p, q := newPoliced(hostWith("none"), limited(rate, h))
			var want [][]byte
			for i := range 2000 {
				f := frame(own, other, 60+i%1400)
				if i%3 == 0 {
					f = frame(own, other, 60000+i)
				}
				q.In = append(q.In, f, frame(own, other, 60000, 7))
				want = append(want, f)
			}
			ops := make([]vnet.ReadOp, n)
			for i := range ops {
				ops[i].Slot = make([]byte, 1<<17)
			}
			read := func() int {
				if n > 1 {
					return p.ReadFrames(ops)
				}
				ops[0].Frame, ops[0].Err = p.ReadFrame(ops[0].Slot)
				return 1
			}
			sum, held := 0, 0
			var got [][]byte
			for len(got) < len(want) {
				k := read()
				for i := range ops[:k] {
					if ops[i].Err != nil {
						continue
					}
					sum += len(ops[i].Frame) - vnet.HdrLen
					got = append(got, slices.Clone(ops[i].Frame))
				}
				if max := allowed(rate, h.at) + vnet.MaxFrame; float64(sum) > max {
					t.Fatalf("%d bytes after %v, at most %.0f", sum, h.at, max)
				}
				if errors.Is(ops[k-1].Err, unix.EAGAIN) {
					d := p.ReadHold()
					if d == 0 {
						continue // frames that do not pass have been skipped
					}
					held++
					h.at += d + time.Duration(held%5)*time.Millisecond
				}
			}
			if !slices.EqualFunc(got, want, bytes.Equal) {
				t.Error("other frames were read")
			}
			if held < 20 {
				t.Errorf("held back %d times", held)
			}
		})
	}
}

// TestUnlimited tests a host with a limit in one direction, which is then removed.
func TestUnlimited(t *testing.T) {
	h := &hand{}
	p, q := newPoliced(hostWith("all"), limited(policy.MinRate, h), func(r *Rules) { r.tx = nil })
	for range 5 {
		if err := p.WriteFrame(frame(own, own, 60000)); err != nil {
			t.Error(err)
		}
	}
	q.In = [][]byte{frame(own, other, 60)}
	if _, err := p.ReadFrame(make([]byte, 2000)); !errors.Is(err, unix.EAGAIN) || p.ReadHold() == 0 || p.WriteHold() != 0 {
		t.Errorf("%v; writing is held back for %v, reading for %v", err, p.WriteHold(), p.ReadHold())
	}
	// The limit is removed.
	p.rules.Store(&Rules{MAC: own, Host: hostWith("all"), Receive: protocol.AllVLANs(), MTU: protocol.MaxMTU})
	if d := p.ReadHold(); d != minHold {
		t.Errorf("one who was held back waits %v longer", d)
	}
	if _, err := p.ReadFrame(make([]byte, 2000)); err != nil || p.ReadHold() != 0 {
		t.Errorf("%v; reading is held back for %v", err, p.ReadHold())
	}
}

// TestLimitedAllocs counts the allocations for a host that is sometimes held back.
func TestLimitedAllocs(t *testing.T) {
	h := &hand{}
	p, q := newPoliced(hostWith("all"), limited(1e9, h))
	q.Quiet = true
	out := batch(rand.New(rand.NewPCG(7, 8)), slices.Repeat([][]byte{frame(other, own, 1500)}, 100)...)
	in := slices.Repeat([][]byte{frame(own, other, 1500)}, 100)
	ops := make([]vnet.ReadOp, 64)
	for i := range ops {
		ops[i].Slot = make([]byte, 2000)
	}
	if n := testing.AllocsPerRun(50, func() {
		q.In = in
		for range 10 {
			h.at += max(p.WriteHold(), p.ReadHold())
			p.WriteFrames(out)
			p.ReadFrames(ops)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

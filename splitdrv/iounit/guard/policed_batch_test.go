package guard

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// batch returns operations that write frames. Some of them, at random, are cut into two parts.
func batch(random *rand.Rand, frames ...[]byte) []vnet.WriteOp {
	ops := make([]vnet.WriteOp, len(frames))
	for i, f := range frames {
		cut := len(f)
		if random.IntN(2) == 0 && len(f) > vnet.MinFrame {
			cut = vnet.MinFrame + random.IntN(min(len(f), headSize)-vnet.MinFrame+1)
		}
		ops[i] = vnet.WriteOp{Head: f[:cut], Rest: f[cut:], Err: errors.New("not done")}
	}
	return ops
}

// TestWriteFrames writes frames that pass and frames that do not, to a queue that is often full. Each
// must be written or counted once.
func TestWriteFrames(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		p, q := newPoliced(hostWith("5"))
		var frames, pass [][]byte
		var want protocol.Statistics
		for i := range 1 + random.IntN(300) {
			f := frame(Broadcast, own, 60+random.IntN(1000), 5)
			f[len(f)-1] = byte(i)
			switch random.IntN(5) {
			case 0:
				copy(f[srcAt:], other[:])
				want.TxSource++
			case 1:
				f[typeAt+3] = 6
				want.TxVLAN++
			default:
				pass = append(pass, f)
				want.TxFrames++
				want.TxBytes += uint64(len(f) - vnet.HdrLen)
			}
			frames = append(frames, f)
		}
		for ops := batch(random, frames...); len(ops) > 0; {
			q.Room = random.IntN(80)
			n := p.WriteFrames(ops)
			for i := range ops[:n] {
				if ops[i].Err != nil {
					t.Fatal(ops[i].Err)
				}
			}
			if n < len(ops) && !errors.Is(ops[n].Err, unix.EAGAIN) {
				t.Fatalf("%d of %d frames done with, %v", n, len(ops), ops[n].Err)
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
	}
}

// TestWriteFramesAtOnce checks that frames are written in few batches.
func TestWriteFramesAtOnce(t *testing.T) {
	p, q := newPoliced(hostWith("all"))
	f := frame(Broadcast, own, 60)
	for n, calls := range map[int]int{1: 1, burst: 1, burst + 1: 2, 3 * burst: 3} {
		q.Calls = 0
		if done := p.WriteFrames(batch(rand.New(rand.NewPCG(1, 2)), slices.Repeat([][]byte{f}, n)...)); done != n ||
			q.Calls != calls {
			t.Errorf("%d frames of %d written in %d batches, want %d", done, n, q.Calls, calls)
		}
	}
	q.Calls = 0
	spoofed := frame(Broadcast, other, 60)
	if done := p.WriteFrames(batch(rand.New(rand.NewPCG(1, 2)), spoofed, spoofed)); done != 2 || q.Calls != 0 {
		t.Errorf("%d frames of 2 done with in %d batches although none passes", done, q.Calls)
	}
}

// TestWriteFramesErrors checks the errors of single frames in a batch.
func TestWriteFramesErrors(t *testing.T) {
	p, q := newPoliced(hostWith("all"))
	long := frame(Broadcast, own, 500)
	ops := []vnet.WriteOp{
		{Head: long},
		{Head: long[:vnet.MinFrame-1]},
		{Head: long[:vnet.MinFrame-1], Rest: long[vnet.MinFrame-1:]},
		{Head: long[:vnet.MinFrame-2], Rest: long[:1]},
		{Head: long[:headSize], Rest: long[headSize:]},
		{Head: long[:headSize+1], Rest: long[headSize+1:]},
	}
	if n := p.WriteFrames(ops); n != len(ops) {
		t.Fatalf("%d of %d frames done with", n, len(ops))
	}
	for i, bad := range []bool{false, true, false, true, false, true} {
		if errors.Is(ops[i].Err, unix.EINVAL) != bad || !bad && ops[i].Err != nil {
			t.Errorf("frame %d, bad %t: %v", i, bad, ops[i].Err)
		}
	}
	if !slices.EqualFunc(q.Out, [][]byte{long, long, long}, bytes.Equal) {
		t.Errorf("%d frames written, or others", len(q.Out))
	}
	q.Err = unix.ENOBUFS
	if n := p.WriteFrames(ops[:1]); n != 1 || !errors.Is(ops[0].Err, unix.ENOBUFS) {
		t.Errorf("%d frames done with, %v", n, ops[0].Err)
	}
	var s protocol.Statistics
	if p.count(&s, &Dropped{}); s.TxFrames != 3 || s.TxBytes != 3*500 {
		t.Errorf("counted %+v", s)
	}
	if n := p.WriteFrames(nil); n != 0 {
		t.Errorf("%d of no frames done with", n)
	}
}

// TestFramesChange has the host change the frames of a batch after they were checked. The checked
// frames must be written.
func TestFramesChange(t *testing.T) {
	p, q := newPoliced(hostWith("5"))
	var frames, want [][]byte
	for range burst {
		f := frame(Broadcast, own, 1000, 5)
		frames, want = append(frames, f), append(want, slices.Clone(f))
	}
	q.Tweak = func() {
		for _, f := range frames {
			copy(f[srcAt:], other[:])
			f[typeAt+3] = 13
		}
	}
	if n := p.WriteFrames(batch(rand.New(rand.NewPCG(3, 4)), frames...)); n != burst {
		t.Fatalf("%d frames written", n)
	}
	if !slices.EqualFunc(q.Out, want, bytes.Equal) {
		t.Error("the frames that were written are not those that were judged")
	}
}

// TestReadFrames reads frames, some of which must be filtered.
func TestReadFrames(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, share := range []int{0, 1, 5, 9, 10} {
		t.Run(fmt.Sprintf("%d of 10 unwanted", share), func(t *testing.T) {
			p, q := newPoliced(hostWith("5"))
			var want [][]byte
			for i := range 1000 {
				f := frame(own, machine, 60+random.IntN(200), 5)
				f[len(f)-1] = byte(i)
				if random.IntN(10) < share {
					f[typeAt+3] = 7
				} else {
					want = append(want, f)
				}
				q.In = append(q.In, f)
			}
			ops := make([]vnet.ReadOp, 40)
			for i := range ops {
				ops[i].Slot = make([]byte, 1000)
			}
			var got [][]byte
			for len(q.In) > 0 {
				some := ops[:1+random.IntN(len(ops))]
				before := len(q.In)
				n := p.ReadFrames(some)
				if n < 1 || n > len(some) {
					t.Fatalf("%d of %d operations filled", n, len(some))
				}
				if before-len(q.In) >= skips+len(some) {
					t.Fatalf("%d frames gone through at once", before-len(q.In))
				}
				for i := range some[:n] {
					if some[i].Err != nil {
						// EAGAIN is right only if the queue is empty, because the reader then waits for FD.
						want := vnet.ErrFiltered
						if len(q.In) == 0 && !errors.Is(some[i].Err, want) {
							want = unix.EAGAIN
						}
						if i != n-1 || !errors.Is(some[i].Err, want) {
							t.Fatalf("operation %d of %d, with %d frames to come: %v", i, n, len(q.In), some[i].Err)
						}
						continue
					}
					if &some[i].Frame[0] != &some[i].Slot[0] {
						t.Fatal("a frame lies outside its slot")
					}
					got = append(got, slices.Clone(some[i].Frame))
				}
			}
			if !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("%d frames read, want %d", len(got), len(want))
			}
			var s protocol.Statistics
			if p.count(&s, &Dropped{}); s.RxFiltered != uint64(1000-len(want)) {
				t.Errorf("%d filtered, want %d", s.RxFiltered, 1000-len(want))
			}
		})
	}
}

func TestPolicedBatchAllocs(t *testing.T) {
	p, q := newPoliced(hostWith("5"))
	q.Quiet = true
	out := batch(rand.New(rand.NewPCG(7, 8)), frame(other, own, 1500, 5), frame(other, card, 60), frame(other, own, 60, 6),
		frame(other, own, 60))
	in := [][]byte{frame(own, other, 60), frame(own, other, 60, 9), frame(own, other, 100, 5)}
	ops := make([]vnet.ReadOp, 10)
	for i := range ops {
		ops[i].Slot = make([]byte, 2000)
	}
	if n := testing.AllocsPerRun(50, func() {
		q.In = in
		if p.WriteFrames(out) != len(out) || p.ReadFrames(ops) != 3 {
			t.Error("a batch was cut short")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPolicedBatch(b *testing.B) {
	p, q := newPoliced(hostWith("all"))
	q.Quiet = true
	ops := make([]vnet.WriteOp, burst)
	for i := range ops {
		ops[i].Head = frame(other, own, 60)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.WriteFrames(ops)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ops)), "ns/frame")
}

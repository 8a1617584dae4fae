package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// TestBatches tests the contract of messaging.Port. Each test has its own fixture.
func TestBatches(t *testing.T, open func(t *testing.T) *PortFixture) {
	t.Run("read", func(t *testing.T) { testReads(t, open(t)) })
	t.Run("write", func(t *testing.T) { testWrites(t, open(t)) })
	t.Run("too long", func(t *testing.T) { testTooLong(t, open(t)) })
	t.Run("bad frames", func(t *testing.T) { testBadFrames(t, open(t)) })
	t.Run("both at once", func(t *testing.T) { testBoth(t, open(t)) })
	t.Run("full", func(t *testing.T) { testFull(t, open(t)) })
	t.Run("allocations", func(t *testing.T) { testBatchAllocs(t, open(t)) })
	t.Run("closed", func(t *testing.T) {
		r := open(t)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		testDead(t, r)
		if err := WriteFrame(r.Port, r.Probe(false, 0, 60)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
	t.Run("down", func(t *testing.T) {
		r := open(t)
		r.Down()
		testDead(t, r)
	})
	t.Run("deleted", func(t *testing.T) {
		r := open(t)
		r.Gone()
		testDead(t, r)
	})
}

// testDead uses a port that does not work any more. Batched calls must have the same errors as
// single calls.
func testDead(t *testing.T, r *PortFixture) {
	reads := Slots(5, 70000)
	_, want := ReadFrame(r.Port, reads[0].Slot)
	for want == nil { // frames from before
		_, want = ReadFrame(r.Port, reads[0].Slot)
	}
	if n := r.Port.ReadFrames(reads); n != 1 || !errors.Is(reads[0].Err, want) || reads[0].Frame != nil {
		t.Errorf("%d operations filled, %v; single: %v", n, reads[0].Err, want)
	}
	want = WriteFrame(r.Port, r.Probe(false, 0, 60))
	ops := WriteOps(rand.New(rand.NewPCG(1, 2)), r.Probe(false, 0, 60), r.Probe(false, 1, 1000), r.Probe(false, 2, 60))
	if n := r.Port.WriteFrames(ops); n != len(ops) {
		t.Errorf("%d of %d written", n, len(ops))
	}
	for i := range ops {
		if !errors.Is(ops[i].Err, want) {
			t.Errorf("write %d: %v; single: %v", i, ops[i].Err, want)
		}
	}
}

// sizes returns n random sizes of frames, some of them super-frames.
func (r *PortFixture) sizes(random *rand.Rand, n int) []int {
	sizes := small(random, n, 1455)
	for i := range sizes {
		if r.Super && random.IntN(12) == 0 {
			sizes[i] = 2000 + random.IntN(60000)
		}
	}
	return sizes
}

func testReads(t *testing.T, r *PortFixture) {
	random := rand.New(rand.NewPCG(3, 4))
	if n := r.Port.ReadFrames(nil); n != 0 {
		t.Errorf("%d of no operations filled", n)
	}
	ops := Slots(70, vnet.Headroom+vnet.MaxFrame+1)
	Eventually(t, func() bool {
		n := r.Port.ReadFrames(ops)
		return n == 1 && errors.Is(ops[0].Err, unix.EAGAIN)
	}, "a port without frames")
	seq := 0
	for range 40 {
		frames := r.probes(true, seq, r.sizes(random, 1+random.IntN(100))...)
		seq += len(frames)
		r.cross(t, random, ops, frames)
	}
}

// cross sends frames to the port, and reads them.
func (r *PortFixture) cross(t *testing.T, random *rand.Rand, ops []vnet.ReadOp, frames [][]byte) {
	t.Helper()
	r.Send(frames...)
	for i, got := range r.Read(t, random, ops, len(frames)) {
		if !bytes.Equal(got[vnet.HdrLen:], frames[i][vnet.HdrLen:]) {
			t.Fatalf("frame %d, of %d bytes, was read as another one, of %d", i, len(frames[i]), len(got))
		}
	}
}

// write writes some of ops, by a single or a batched call, chosen at random. It returns how many,
// 0 if the device is full.
func (r *PortFixture) write(t *testing.T, random *rand.Rand, ops []vnet.WriteOp) int {
	if random.IntN(4) == 0 {
		err := WriteFrame(r.Port, slices.Concat(ops[0].Head, ops[0].Rest))
		if errors.Is(err, unix.EAGAIN) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return 1
	}
	some := ops[:1+random.IntN(len(ops))]
	n := r.Port.WriteFrames(some)
	for i := range some[:n] {
		if some[i].Err != nil {
			t.Fatalf("writing %d and %d bytes: %v", len(some[i].Head), len(some[i].Rest), some[i].Err)
		}
	}
	if n < len(some) && !errors.Is(some[n].Err, unix.EAGAIN) {
		t.Fatalf("%d of %d frames written: %v", n, len(some), some[n].Err)
	}
	return n
}

func testWrites(t *testing.T, r *PortFixture) {
	r.far = r.Listen()
	random := rand.New(rand.NewPCG(5, 6))
	if n := r.Port.WriteFrames(nil); n != 0 {
		t.Errorf("%d of no operations done", n)
	}
	seq := 0
	for range 40 {
		frames := r.probes(false, seq, r.sizes(random, 1+random.IntN(100))...)
		seq += len(frames)
		ops := WriteOps(random, frames...)
		Eventually(t, func() bool {
			for len(ops) > 0 {
				n := r.write(t, random, ops)
				if n == 0 {
					return false // the device is full
				}
				ops = ops[n:]
			}
			return true
		}, "room for %d frames", len(frames))
		r.Receive(t, frames...)
	}
}

// writeAll writes all of ops, and waits while the device is full.
func (r *PortFixture) writeAll(ops []vnet.WriteOp) error {
	for len(ops) > 0 {
		n := r.Port.WriteFrames(ops)
		if ops = ops[n:]; len(ops) == 0 {
			break
		}
		if !errors.Is(ops[0].Err, unix.EAGAIN) {
			return fmt.Errorf("%d frames written before %w", n, ops[0].Err)
		}
		fds := []unix.PollFd{{Fd: int32(writeFD(r.Port)), Events: unix.POLLOUT}}
		if n, err := unix.Poll(fds, int(Patience.Milliseconds())); n != 1 && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("a device that is full for long: %w", err)
		}
	}
	return nil
}

// testTooLong reads with slots that are too short for some frames.
func testTooLong(t *testing.T, r *PortFixture) {
	random := rand.New(rand.NewPCG(7, 8))
	ops := Slots(33, 800)
	sizes := small(random, 100, 600)
	for i := range sizes {
		if random.IntN(3) == 0 {
			sizes[i] = 900 + random.IntN(600)
		}
	}
	frames := r.probes(true, 0, sizes...)
	r.Send(frames...)
	for i, got := range r.Read(t, random, ops, len(frames)) {
		if long := len(frames[i]) > 800; long != (got == nil) ||
			!long && !bytes.Equal(got[vnet.HdrLen:], frames[i][vnet.HdrLen:]) {
			t.Fatalf("frame %d, of %d bytes, was read as %d bytes", i, len(frames[i]), len(got))
		}
	}
	if n := r.Port.ReadFrames(Slots(3, vnet.MinFrame-1)); n != 1 {
		t.Errorf("%d slots that are too short for any frame were filled", n)
	}
}

// testBadFrames writes invalid frames, which are refused, between valid ones.
func testBadFrames(t *testing.T, r *PortFixture) {
	r.far = r.Listen()
	random := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{2, 3, 10, 64, 65, 200} {
		var frames, good [][]byte
		bad := make([]bool, n)
		for i := range n {
			f := r.Probe(false, uint32(i), 60+random.IntN(1400))
			switch random.IntN(6) {
			case 0:
				f = f[:vnet.MinFrame-1]
				bad[i] = true
			case 1:
				f[1] = 77 // no type of segmentation
				bad[i] = true
			default:
				good = append(good, slices.Clone(f))
			}
			frames = append(frames, f)
		}
		ops := make([]vnet.WriteOp, n)
		for i, f := range frames {
			ops[i].Head = f
		}
		if err := r.writeAll(ops); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if errors.Is(ops[i].Err, unix.EINVAL) != bad[i] || !bad[i] && ops[i].Err != nil {
				t.Errorf("frame %d of %d, bad %t: %v", i, n, bad[i], ops[i].Err)
			}
		}
		r.Receive(t, good...)
	}
}

// testBoth reads and writes at the same time.
func testBoth(t *testing.T, r *PortFixture) {
	const rounds, each = 30, 40
	done := make(chan struct{})
	go func() {
		defer close(done)
		random := rand.New(rand.NewPCG(11, 12))
		for i := range rounds {
			frames := r.probes(false, i*each, small(random, each, 1400)...)
			if err := r.writeAll(WriteOps(random, frames...)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	random := rand.New(rand.NewPCG(13, 14))
	ops := Slots(20, vnet.Headroom+vnet.MaxFrame+1)
	for i := range rounds {
		r.cross(t, random, ops, r.probes(true, i*each, small(random, each, 1400)...))
	}
	<-done
}

// testFull fills a device that then accepts nothing for a while.
func testFull(t *testing.T, r *PortFixture) {
	if r.Slow == nil {
		return // a full device drops frames
	}
	r.far = r.Listen()
	random := rand.New(rand.NewPCG(15, 16))
	r.Slow(true)
	var sent [][]byte
	var left []vnet.WriteOp
	for len(left) == 0 {
		frames := r.probes(false, len(sent), slices.Repeat([]int{600}, 50)...)
		sent = append(sent, frames...)
		ops := WriteOps(random, frames...)
		n := r.Port.WriteFrames(ops)
		for i := range ops[:n] {
			if ops[i].Err != nil {
				t.Fatal(ops[i].Err)
			}
		}
		left = ops[n:]
		if len(sent) > 50000 {
			t.Fatal("the device is never full")
		}
	}
	if !errors.Is(left[0].Err, unix.EAGAIN) {
		t.Errorf("the first frame that was not written: %v", left[0].Err)
	}
	if n := r.Port.WriteFrames(left); n != 0 || !errors.Is(left[0].Err, unix.EAGAIN) {
		t.Errorf("%d frames written to a device that is full, %v", n, left[0].Err)
	}
	t.Logf("%d frames of %d were written before the device was full", len(sent)-len(left), len(sent))
	// Now the device accepts frames at its own pace, and is full most of the time. No frame may
	// overtake another one.
	frames := r.probes(false, len(sent), small(random, 2000, 600)...)
	sent, left = append(sent, frames...), append(left, WriteOps(random, frames...)...)
	r.Slow(false)
	Eventually(t, func() bool {
		for range 1000 { // there may be room at any time
			left = left[r.Port.WriteFrames(left):]
		}
		return len(left) == 0
	}, "room in the device")
	r.Receive(t, sent...)
}

func testBatchAllocs(t *testing.T, r *PortFixture) {
	const n, runs = 16, 20
	out := make([]vnet.WriteOp, n)
	for i := range out {
		out[i].Head = r.Probe(false, uint32(i), 100)
		if i%2 == 0 {
			out[i].Head, out[i].Rest = out[i].Head[:60], out[i].Head[60:]
		}
	}
	in := Slots(n, vnet.Headroom+vnet.MaxFrame+1)
	r.Send(r.probes(true, 0, slices.Repeat([]int{100}, n*(runs+1))...)...)
	read, written := 0, 0
	if a := testing.AllocsPerRun(runs, func() {
		read += r.Port.ReadFrames(in)
		written += r.Port.WriteFrames(out) // fewer if the device is full
	}); a != 0 {
		t.Errorf("%v allocations for %d frames", a, n)
	}
	if read < runs*n/2 || written < runs*n/4 {
		t.Errorf("only %d frames were read, and %d written", read, written)
	}
	for range 10 * n {
		r.Port.ReadFrames(in)
	}
	if a := testing.AllocsPerRun(runs, func() { r.Port.ReadFrames(in) }); a != 0 {
		t.Errorf("%v allocations without a frame", a)
	}
}

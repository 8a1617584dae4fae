//go:build !race

// The race detector makes allocations of its own.

package messaging_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/vnet"
)

// TestFramesDoNotAllocate counts the allocations of both endpoints, in all threads, while
// frames are exchanged, and expects none.
func TestFramesDoNotAllocate(t *testing.T) {
	for _, mode := range protocol.Modes() {
		for _, copied := range []int{0, -1} {
			t.Run(fmt.Sprintf("%s, copied %d", mode, copied), func(t *testing.T) { noAllocations(t, mode, copied, "") })
		}
		for _, c := range seal.Ciphers() {
			t.Run(fmt.Sprintf("%s, %s", mode, c), func(t *testing.T) { noAllocations(t, mode, 0, c) })
		}
	}
}

func noAllocations(t *testing.T, mode protocol.Mode, copied int, c seal.Cipher) {
	// No capture is running, which is the usual case.
	path := new(capture.Point).Path("queue 0", "")
	cfg := patient(messaging.Config{Mode: mode, PackCopy: copied, KeepAlive: 50 * time.Second,
		Capture: func(int) *capture.Path { return path }})
	if c != "" {
		cfg, _ = sealedWith(t, c, cfg)
	}
	_, a, b := startedPair(t, cfg, newRawPort)
	for _, n := range []int{vnet.MinFrame + 46, 1500, 60000} {
		f := frame(1, n, 1500)
		buf := make([]byte, 1<<16)
		got := testing.AllocsPerRun(200, func() {
			if _, err := unix.Write(a, f); err != nil {
				t.Fatal(err)
			}
			if m, err := unix.Read(b, buf); err != nil || m != n {
				t.Fatal(m, err)
			}
		})
		if got != 0 {
			t.Errorf("%d bytes: %v allocations per frame", n, got)
		}
	}
	// Several frames at once travel in packs.
	f := frame(1, vnet.MinFrame+46, 1500)
	buf := make([]byte, 1<<16)
	got := testing.AllocsPerRun(200, func() {
		for range 20 {
			if _, err := unix.Write(a, f); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			if _, err := unix.Read(b, buf); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got != 0 {
		t.Errorf("%v allocations per burst", got)
	}
}

// slowPort is a rawPort that holds back every frame once, in both directions.
type slowPort struct {
	rawPort
	read, wrote bool // the last read, or write, was held back
}

func (p *slowPort) ReadFrames(ops []vnet.ReadOp) int {
	return porttest.Batched{Single: p}.ReadFrames(ops)
}

func (p *slowPort) WriteFrames(ops []vnet.WriteOp) int {
	return porttest.Batched{Single: p}.WriteFrames(ops)
}

func (p *slowPort) ReadFrame(slot []byte) ([]byte, error) {
	if p.read = !p.read; p.read {
		return nil, errAgain
	}
	return p.rawPort.ReadFrame(slot)
}

func (p *slowPort) WriteFrame(frame []byte) error {
	if p.wrote = !p.wrote; p.wrote {
		return errAgain
	}
	return p.rawPort.WriteFrame(frame)
}

func (p *slowPort) ReadHold() time.Duration  { return heldFor(p.read) }
func (p *slowPort) WriteHold() time.Duration { return heldFor(p.wrote) }

func heldFor(held bool) time.Duration {
	if held {
		return 50 * time.Microsecond
	}
	return 0
}

var errAgain error = unix.EAGAIN // made once: a conversion for each call would allocate

// TestHeldFramesDoNotAllocate is TestFramesDoNotAllocate for frames that are held back.
func TestHeldFramesDoNotAllocate(t *testing.T) {
	cfg := patient(messaging.Config{KeepAlive: 50 * time.Second})
	_, a, b := startedPair(t, cfg, func(t *testing.T) (messaging.Port, int) {
		p, fd := newRawPort(t)
		return &slowPort{rawPort: p.(porttest.Batched).Single.(rawPort)}, fd
	})
	f := frame(1, 1500, 1500)
	buf := make([]byte, 1<<16)
	if got := testing.AllocsPerRun(200, func() {
		if _, err := unix.Write(a, f); err != nil {
			t.Fatal(err)
		}
		if m, err := unix.Read(b, buf); err != nil || m != len(f) {
			t.Fatal(m, err)
		}
	}); got != 0 {
		t.Errorf("%v allocations per frame", got)
	}
}

// TestPoolsTakenBackLeaveNothing has a peer lend pools and take them back, under one
// reference and under many. The endpoint must reuse the bookkeeping of former pools for new
// ones.
func TestPoolsTakenBackLeaveNothing(t *testing.T) {
	const (
		times, elements = 12, 4096 // no more than the rate limit for flushes allows at once
		most            = elements // bytes for each pool; new bookkeeping takes 17 for each element
	)
	for _, tt := range []struct {
		name string
		refs uint32
	}{{"one reference", 1}, {"many references", 1000}} {
		t.Run(tt.name, func(t *testing.T) {
			h, p := newRawPeer(t, messaging.Config{})
			lend := func(from, n uint32) {
				for i := range n {
					p.lendAndTakeBack(1+(from+i)%tt.refs, elements)
				}
			}
			var before, after runtime.MemStats
			warm := uint32(2)
			if tt.refs > 1 {
				warm = protocol.MaxPoolElements/elements + 2 // as many closed pools as are remembered
			}
			lend(0, warm)
			runtime.ReadMemStats(&before)
			lend(warm, times)
			runtime.ReadMemStats(&after)
			if n := (after.TotalAlloc - before.TotalAlloc) / times; n > most {
				t.Errorf("%d bytes were allocated for each pool, at most %d", n, most)
			}
			if err := h.conn.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

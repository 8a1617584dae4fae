//go:build !race

// The test has a data race on purpose.

package guard

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/vnet"
)

// judgedQueue checks the frames that are written to it.
type judgedQueue struct {
	queue
	frames, wrong int
}

func (q *judgedQueue) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		q.frames++
		if vnet.Check(slices.Concat(ops[i].Head, ops[i].Rest), 1500) != nil {
			q.wrong++
		}
		ops[i].Err = nil
	}
	return len(ops)
}

// TestHeaderRace has a host change the segment size of a super-frame all the time while the frame is
// checked and then written. No invalid frame may be written.
func TestHeaderRace(t *testing.T) {
	p, _ := newPoliced(hostWith("all"), func(r *Rules) { r.MTU = 1500 })
	q := &judgedQueue{}
	p.queue = q
	f := super(4000, 1460)
	var done atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for size := uint16(1460); !done.Load(); size ^= 1460 ^ 9000 {
			binary.LittleEndian.PutUint16(f[4:], size)
			for range 20 {
				_ = done.Load() // leaves the size unchanged for a moment
			}
		}
	}()
	for range 20_000_000 {
		if q.frames == 20_000 {
			break
		}
		if vnet.Check(f, 1500) == nil { // as the receiver of package messaging does
			_ = p.WriteFrame(f)
		}
	}
	done.Store(true)
	<-ended
	t.Logf("%d frames, %d wrong", q.frames, q.wrong)
	if q.frames == 0 || q.wrong > 0 {
		t.Errorf("%d frames written, %d of them with segments that the MTU does not allow", q.frames, q.wrong)
	}
}

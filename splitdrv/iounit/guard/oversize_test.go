package guard

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// TestOversize checks that frames are counted if they are, whole or in segments, longer than a
// network card with an MTU of 1500 has to send.
func TestOversize(t *testing.T) {
	tagged := func(segment uint16, tags int) []byte { // a super-frame
		f := super(4000, segment)
		buf := append(make([]byte, tags*vnet.Headroom), f...)
		for i := tags; i > 0; i-- {
			vnet.InsertVLAN(buf[(i-1)*vnet.Headroom:], 0x8100, 5)
		}
		return buf
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		want  uint64
	}{
		{"no tag", frame(Broadcast, own, 1514), 0},
		{"one tag", frame(Broadcast, own, 1518, 5), 0},
		{"two tags, shorter", frame(Broadcast, own, 1518, 5, 6), 0},
		{"two tags", frame(Broadcast, own, 1519, 5, 6), 1},
		{"segments with a tag", tagged(1460, 1), 0},
		{"segments with two tags, shorter", tagged(1456, 2), 0},
		{"segments with two tags", tagged(1457, 2), 1},
	} {
		p, q := newPoliced(hostWith("all"), func(r *Rules) { r.MTU, r.Card = 1500, 1500 })
		if err := p.WriteFrame(tc.frame); err != nil || len(q.Out) != 1 {
			t.Fatalf("%s: %d frames written, %v", tc.name, len(q.Out), err)
		}
		if got := p.oversize.Load(); got != tc.want {
			t.Errorf("%s: %d are counted", tc.name, got)
		}
		q.Err = unix.EINVAL
		if _ = p.WriteFrame(tc.frame); p.oversize.Load() != tc.want {
			t.Errorf("%s: counted although it was not written", tc.name)
		}
	}
}

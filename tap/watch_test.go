package tap

import (
	"slices"
	"testing"

	"github.com/splitnic/splitnic/vnet"
)

// TestHinted reads frames, and a state that was not told: only those to a group, and the
// state, have Watch look at what the kernel does not announce.
func TestHinted(t *testing.T) {
	d := &Device{tun: tun{queues: []*Queue{NewQueue(-1), NewQueue(-1)}}}
	for _, tc := range []struct {
		to   byte // first byte of the destination
		n    int
		want bool
	}{
		{0x33, 90, true},  // IPv6 multicast
		{0x01, 60, true},  // IPv4 multicast
		{0xff, 60, false}, // broadcast
		{0x02, 60, false},
		{0x33, vnet.MaxFrame + 1, false}, // did not fit
	} {
		slot := make([]byte, vnet.MaxFrame+1)
		slot[vnet.HdrLen] = tc.to
		_, _ = d.queues[1].result(slot, tc.n, nil)
		if got := []bool{d.hinted(), d.hinted()}; !slices.Equal(got, []bool{tc.want, false}) {
			t.Errorf("%d bytes to %#x…: %v", tc.n, tc.to, got)
		}
	}
	d.unreported.Store(true)
	if !d.hinted() {
		t.Error("a state that was not told is no reason to look")
	}
}

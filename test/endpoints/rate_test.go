package endpoints

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/lan"
)

// TestRateOutlastsSession lets a host send one frame in each of several sessions. The frames of
// earlier sessions have to count for the rate, although each session lets its first frame pass at
// once.
func TestRateOutlastsSession(t *testing.T) {
	const sessions, rate, n = 3, 100_000, 9000
	w := newWorld(t)
	one := w.gateway("one", ruled(t, "default: {max-tx-rate: 100k}"))
	one.card.change(func(s *lan.LinkState) { s.MTU = n })
	w.addr = one.cable.addr
	begun := time.Now()
	d, _, _ := w.host("alpha")
	for i := range sessions {
		if i > 0 {
			one.cut()
			d.down(t)
			one.plug()
		}
		d.up(t)
		crosses(t, d.wire, one.card.wire(d.mac), from(t, d.mac, frame(n, 2)))
	}
	if took, least := time.Since(begun), time.Duration(
		float64((sessions-1)*8*(n-100))/rate*float64(time.Second)); took < least {
		t.Errorf("%d frames of %d bytes passed in %v, which should take %v", sessions, n, took, least)
	}
}

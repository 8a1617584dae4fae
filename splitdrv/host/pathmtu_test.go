package host

import (
	"testing"
	"time"
)

// TestPathMTUs halves the path MTU of an I/O unit that does not answer, begins again after the
// smallest one, and forgets after a while. Another I/O unit keeps the port's.
func TestPathMTUs(t *testing.T) {
	var p pathMTUs
	now := time.Now()
	for _, want := range []int{1024, 512, 256, 0, 1024} {
		mtu := p.limit("a", now)
		if mtu == 0 {
			mtu = 2048
		}
		if next := p.lost("a", mtu, now); next != want || p.limit("a", now) != want {
			t.Fatalf("after %d bytes: %d and %d, want %d", mtu, next, p.limit("a", now), want)
		}
	}
	if got := p.limit("b", now); got != 0 {
		t.Errorf("another I/O unit: %d", got)
	}
	if got := p.limit("a", now.Add(pathMTUMemory-1)); got != 1024 {
		t.Errorf("before it is forgotten: %d", got)
	}
	if got := p.limit("a", now.Add(pathMTUMemory)); got != 0 {
		t.Errorf("after that: %d", got)
	}
}

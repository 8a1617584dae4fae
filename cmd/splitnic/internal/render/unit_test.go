package render

import (
	"testing"

	"github.com/splitnic/splitnic/splitdrv/iounit"
)

func TestLANText(t *testing.T) {
	for want, l := range map[string]iounit.LANStatus{
		"up, mtu 1500, 10Gbit":    {Up: true, MTU: 1500, SpeedMbps: 10_000},
		"down, mtu 9000, 2.5Gbit": {MTU: 9000, SpeedMbps: 2500},
		"up, mtu 1500":            {Up: true, MTU: 1500},
		"no such device":          {Error: "no such device"},
	} {
		if got := lanText(&l); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCounted(t *testing.T) {
	for n, want := range []string{"0 hosts", "1 host", "2 hosts"} {
		if got := Counted(n, "host"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := Counted(uint64(3), "address") + Counted(2, "batch"); got != "3 addresses2 batches" {
		t.Errorf("got %q", got)
	}
}

package verbs

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

func TestCheckConfig(t *testing.T) {
	l := fabric.Limits{MaxSGE: 30, MaxRdAtomic: 16, MaxDestRdAtomic: 8}
	for _, good := range []fabric.QPConfig{{}, {MaxSGE: 1},
		{MaxSGE: 30, ServiceLevel: 15, TrafficClass: 255, HopLimit: 255},
		{Transport: fabric.RC, MaxRdAtomic: 16, MaxDestRdAtomic: 8}} {
		if err := checkConfig(good, l); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []fabric.QPConfig{
		{MaxSend: -1}, {MaxRecv: -1}, {MaxInline: -1}, {MaxSGE: -1}, {MaxSGE: 31}, {ServiceLevel: 16},
		{MaxRdAtomic: 17}, {MaxDestRdAtomic: 9}, {Transport: fabric.UC, MaxRdAtomic: 1},
		{Transport: fabric.UC, MaxDestRdAtomic: 1},
	} {
		if err := checkConfig(bad, l); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func TestHopLimit(t *testing.T) {
	for set, want := range map[uint8]uint8{0: 64, 1: 1, 255: 255} {
		if got := hopLimit(fabric.QPConfig{HopLimit: set}); got != want {
			t.Errorf("%d is %d, want %d", set, got, want)
		}
	}
}

func TestCheckModeration(t *testing.T) {
	for _, c := range []struct {
		count  int
		period time.Duration
		ok     bool
	}{
		{0, 0, true},
		{1, 0, true},
		{16, 50 * time.Microsecond, true},
		{65535, 65535 * time.Microsecond, true},
		{0, time.Microsecond, false},
		{-1, 0, false},
		{65536, 0, false},
		{1, -time.Microsecond, false},
		{1, 65536 * time.Microsecond, false},
		{1, 1500, false},
	} {
		if err := checkModeration(c.count, c.period); (err == nil) != c.ok {
			t.Errorf("%d, %v: %v", c.count, c.period, err)
		}
	}
}

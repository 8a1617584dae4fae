package host

import (
	"log/slog"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// TestFramesCarriedOver has a session leave three frames that were read with some offloads enabled.
// It expects the next session in use to get the frames, once, if it has the same offloads.
// Otherwise the frames are lost.
func TestFramesCarriedOver(t *testing.T) {
	left := func() *messaging.Unsent {
		return &messaging.Unsent{Frames: [][][]byte{{{1}, {2}}, {{3}}}, Uncertain: 5, Lost: 1, Unrevoked: 2}
	}
	const read = vnet.CSUM | vnet.TSO4
	for _, c := range []struct {
		name          string
		inVain        bool // a session in between is not put to use
		next          vnet.Offloads
		carried, lost uint64
	}{
		{"to one that can do the same", false, read, 3, 3},
		{"to one that can do more", false, vnet.AllOffloads, 3, 3},
		{"to one that can do less", false, vnet.CSUM, 0, 6},
		{"past one that is never put to use", true, read, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sessions{cfg: &Config{Log: slog.New(slog.DiscardHandler)}}
			one, two := &attachment{addr: "one"}, &attachment{addr: "two"}
			s.failedOver(one, read)
			s.failover(one, uplink.ReasonDied, nil, time.Now(), left())
			if c.inVain {
				s.failover(two, uplink.ReasonStart, nil, time.Now(), &messaging.Unsent{Frames: [][][]byte{nil, nil}})
			}
			var got uint64
			if r := s.takeUnsent(c.next); r != nil {
				got = r.Count()
				if len(r.Frames) != 2 || len(r.Frames[0]) != 2 {
					t.Errorf("by channel: %v", r.Frames)
				}
			}
			if got != c.carried {
				t.Errorf("%d frames, want %d", got, c.carried)
			}
			if again := s.takeUnsent(c.next); again != nil {
				t.Errorf("again: %v", again)
			}
			s.failedOver(two, c.next)
			if f := s.failovers.Status(); f.Carried != c.carried || f.Lost != c.lost || f.Uncertain != 5 {
				t.Errorf("%+v", f)
			}
		})
	}
}

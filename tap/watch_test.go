package tap

import (
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/vnet"
)

// TestHinted reads frames, and a state that Watch has not reported. Only frames to a multicast group,
// and the state, may be hints for Watch to check the properties that the kernel does not announce.
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
		{0x33, vnet.MaxFrame + 1, false}, // longer than the slot
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

// reminded returns a device for which Watch waits, and a function that reports whether the wait was
// interrupted.
func reminded(t *testing.T) (d *Device, interrupted func() bool) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	d = &Device{tun: tun{queues: []*Queue{NewQueue(-1), NewQueue(-1)}}}
	d.subscription.Store(&subscription{file: r, blind: true})
	return d, func() bool {
		_, err := r.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return r.SetReadDeadline(time.Time{}) == nil
	}
}

// TestRemindRests expects reminders until Watch has checked the device. After that it expects none
// until the time of the next glance, unless there is a hint.
func TestRemindRests(t *testing.T) {
	d, interrupted := reminded(t)
	remind := func(n uint64, want int) {
		t.Helper()
		if rest := d.remind(ticker.Tick{N: n}); rest != want {
			t.Errorf("call %d: a rest of %d calls, want %d", n, rest, want)
		}
	}
	remind(16, 0) // the time of a glance
	remind(17, 0)
	if !interrupted() || !d.pollDue.Swap(false) {
		t.Error("it is time for a glance, and nobody is told")
	}
	remind(18, 5)
	remind(23, 0)
	d.queues[1].toGroup.Store(true)
	remind(20, 0)
	if !interrupted() || !d.hinted() || d.pollDue.Load() {
		t.Error("a hint was not told, or taken for something else")
	}
	remind(21, 2)
}

// TestHintsWake expects frames to a multicast group to end the pause between reminders.
func TestHintsWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Device{tun: tun{queues: []*Queue{NewQueue(-1)}}}
		var tick ticker.Ticker
		var calls atomic.Int32
		d.queues[0].reminder.Store(tick.Every(time.Second, func(ticker.Tick) int { calls.Add(1); return ticker.MaxRest }))
		defer d.queues[0].reminder.Load().Stop()
		slot := make([]byte, vnet.MaxFrame+1)
		for i, to := range []byte{0x02, 0x33, 0x33} {
			time.Sleep(2 * time.Second)
			slot[vnet.HdrLen] = to
			_, _ = d.queues[0].result(slot, 90, nil)
			synctest.Wait()
			if n, want := calls.Load(), int32(max(1, i)); n != want {
				t.Errorf("%d calls before frame %d, want %d", n, i, want)
			}
		}
	})
}

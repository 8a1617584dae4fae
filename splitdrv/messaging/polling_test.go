package messaging_test

import (
	"errors"
	"testing"

	"github.com/splitnic/splitnic/internal/spin"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// TestAdaptivePolling sends frames to and fro. A worker whose sleeps are short must begin to
// poll instead of sleeping, but not after long frames, and not if no processor is idle.
func TestAdaptivePolling(t *testing.T) {
	idle := func() (int, error) { return 1, nil }
	busy := func() (int, error) { return 9, nil }
	unknown := func() (int, error) { return 0, errors.New("nobody knows") }
	const rounds = 100
	for _, c := range []struct {
		name     string
		length   int
		runnable func() (int, error)
		sleeps   bool // the worker sleeps before each frame
	}{
		{"small frames", 64, idle, false},
		{"long frames", 1514, idle, true},
		{"small frames on a busy machine", 64, busy, true},
		{"small frames on a machine that does not tell", 64, unknown, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The longest polling time, so that no pause of a slow machine is longer. All workers
			// may poll: if only one may, chance decides which.
			cfg := patient(messaging.Config{
				Spin: cq.MaxSpin, SpinAdaptive: true, SpinLimit: spin.LimitOf(8, 4, c.runnable),
			})
			_, a, b := newPair(t, cfg, patient(messaging.Config{}))
			buf := make([]byte, 2000)
			woken := func() uint64 {
				for _, w := range a.conn.Stats().Handlers[1].Workers {
					if w.Role == cq.RoleReceiver {
						return w.Wakeups
					}
				}
				return 0
			}
			// exchange sends frames to and fro, and returns how often the receiver was woken.
			exchange := func(frames int) int {
				before := woken()
				for i := range frames {
					for _, way := range [2][2]*endpoint{{a, b}, {b, a}} {
						if err := way[0].wires[0].Send(deadline(t), frame(uint64(i), c.length, 1500)); err != nil {
							t.Fatal(err)
						}
						if _, err := way[1].wires[0].Receive(deadline(t), buf); err != nil {
							t.Fatal(err)
						}
					}
				}
				return int(woken() - before)
			}
			if c.sleeps {
				if n := exchange(rounds); n < rounds/2 {
					t.Errorf("woken %d times for %d frames", n, rounds)
				}
				return
			}
			// The worker learns from each sleep that lasts longer than it has polled before. There
			// are few such sleeps while other threads keep the worker from polling.
			testenv.Eventually(t, func() bool { return exchange(rounds) < rounds/4 }, "a receiver that polls")
		})
	}
}

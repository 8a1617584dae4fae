package tx

import (
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
)

// TestPauseWhileTheQueueIsRead pauses a sender again and again while it reads its queue. Whatever it has
// read before: either it knows of the pause afterwards, or it will read the queue again.
func TestPauseWhileTheQueueIsRead(t *testing.T) {
	s := newIdle(t, protocol.ModeImm, usual(), 0, pools.Options{})
	for i := range 500 {
		done, paused := make(chan struct{}, 1), make(chan struct{})
		s.Queue.Wake()
		go func() {
			defer close(paused)
			s.Pause(done)
		}()
		for reading := true; reading; {
			select {
			case <-paused:
				reading = false
			default:
				s.readQueue()
			}
		}
		if !s.Queue.Pending.Load() && !s.wantsCompletions() {
			t.Fatalf("pause %d is lost", i)
		}
		s.readQueue()
		if err := s.settle(); err != nil {
			t.Fatal(err)
		}
		if len(done) != 1 || s.wantsCompletions() {
			t.Fatalf("pause %d: reported %d times", i, len(done))
		}
	}
}

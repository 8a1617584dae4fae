package messaging

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// Moderation says how a device is to hold back the events of a completion
// queue: until Count completions have come, or for Period after the first. The
// zero value is none.
type Moderation struct {
	Count  int           // 1 to 65535
	Period time.Duration // whole microseconds, up to 65.535 ms
}

// Check reports what fabric.Moderator does not take.
func (m Moderation) Check() error {
	switch {
	case m == Moderation{}:
	case m.Count < 1 || m.Count > math.MaxUint16:
		return fmt.Errorf("an event for %d completions, must be 1 to %d", m.Count, math.MaxUint16)
	case m.Period < 0 || m.Period > math.MaxUint16*time.Microsecond || m.Period%time.Microsecond != 0:
		return fmt.Errorf("an event after %v, must be whole microseconds up to %v", m.Period, math.MaxUint16*time.Microsecond)
	case m.Count > 1 && m.Period == 0:
		// The last completions of a burst would never wake anybody.
		return fmt.Errorf("an event for %d completions and no period after which it comes anyway", m.Count)
	}
	return nil
}

// apply reports whether the queues are moderated now: a device that has no
// moderation is no mistake.
func (m Moderation) apply(queues ...fabric.CQ) (bool, error) {
	if (m == Moderation{}) {
		return false, nil
	}
	for _, cq := range queues {
		q, ok := cq.(fabric.Moderator)
		if !ok {
			return false, nil
		}
		if err := q.Moderate(m.Count, m.Period); errors.Is(err, fabric.ErrUnsupported) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

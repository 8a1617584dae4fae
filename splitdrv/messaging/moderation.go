package messaging

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// Moderation is the moderation of a completion queue (ibv_modify_cq(3)): the device raises
// an event after Count completions, or Period after the first one. The zero value means no
// moderation.
type Moderation struct {
	Count  int           // 1 to 65535
	Period time.Duration // whole microseconds, up to 65.535 ms
}

// Check returns an error if fabric.Moderator does not accept m.
func (m Moderation) Check() error {
	switch {
	case m == Moderation{}:
	case m.Count < 1 || m.Count > math.MaxUint16:
		return fmt.Errorf("an event for %d completions, must be 1 to %d", m.Count, math.MaxUint16)
	case m.Period < 0 || m.Period > math.MaxUint16*time.Microsecond || m.Period%time.Microsecond != 0:
		return fmt.Errorf("an event after %v, must be whole microseconds up to %v", m.Period, math.MaxUint16*time.Microsecond)
	case m.Count > 1 && m.Period == 0:
		// The last completions of a burst would never raise an event.
		return fmt.Errorf("an event for %d completions and no period after which it comes anyway", m.Count)
	}
	return nil
}

// apply moderates the queues, and reports whether the device can do that. A device without
// moderation is not an error.
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

package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// defaultHopLimit equals Linux's IP_DEFTTL, so that RoCE v2 packets cross as many routers as
// other IP packets.
const defaultHopLimit = 64

func hopLimit(c fabric.QPConfig) uint8 { return cmp.Or(c.HopLimit, defaultHopLimit) }

// checkConfig returns an error that names the part of a queue pair's configuration that is
// invalid on a device with limits l, or does not fit its C type.
func checkConfig(c fabric.QPConfig, l fabric.Limits) error {
	switch {
	case c.MaxSend < 0 || c.MaxRecv < 0 || c.MaxInline < 0 || c.MaxSGE < 0:
		return errors.New("a size is negative")
	case c.MaxSGE > l.MaxSGE:
		return fmt.Errorf("requests of %d pieces, the device takes up to %d", c.MaxSGE, l.MaxSGE)
	case int(c.MaxRdAtomic) > l.MaxRdAtomic:
		return fmt.Errorf("%d reads outstanding, the device takes up to %d", c.MaxRdAtomic, l.MaxRdAtomic)
	case int(c.MaxDestRdAtomic) > l.MaxDestRdAtomic:
		return fmt.Errorf("%d reads of the peer's, the device takes up to %d", c.MaxDestRdAtomic, l.MaxDestRdAtomic)
	case c.Transport == fabric.UC && c.MaxRdAtomic|c.MaxDestRdAtomic != 0:
		return errors.New("reads take a reliable connection")
	case c.ServiceLevel > 15:
		return fmt.Errorf("service level %d is over 15", c.ServiceLevel)
	}
	return nil
}

// checkModeration returns an error if the parameters of a completion queue's moderation
// cannot be passed to any device.
func checkModeration(count int, period time.Duration) error {
	switch {
	case count == 0 && period == 0:
		return nil
	case count < 1 || count > math.MaxUint16:
		return fmt.Errorf("%d completions are not 1 … %d", count, math.MaxUint16)
	case period < 0 || period > math.MaxUint16*time.Microsecond || period%time.Microsecond != 0:
		return fmt.Errorf("%v is not a number of microseconds up to %d", period, math.MaxUint16)
	}
	return nil
}

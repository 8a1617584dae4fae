package pools

import (
	"time"

	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
)

// Options are the settings of a pool manager.
type Options struct {
	Channels  int            // data channels
	PeerPools int            // largest number of pools that the peer lends on a data channel
	Idle      time.Duration  // Config.PoolIdle
	Budget    *memory.Budget // nil: there is none
	Now       func() time.Time

	// Windows is true if a window is bound around each local pool, and OneTouch if one is bound
	// around each element. WindowBounds says that the device enforces their bounds.
	Windows, OneTouch, WindowBounds bool
	StrictOrdering                  bool
	Invalidation                    bool // Config.Invalidation
	KeySend                         bool // Config.KeySend
	PeerOneTouch                    bool // the peer may lend one-touch pools
}

package rx

import (
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// Options are the settings of a receiver.
type Options struct {
	Receives    int           // largest number of posted receives
	Invalidates bool          // the peer invalidates the windows of pools that it returns
	KeySend     bool          // the peer sends keys of pools between its writes
	NoPack      bool          // Config.NoPack
	Path        *capture.Path // nil: there is none
	Poll        bool          // Config.Poll
	Opener      *seal.Opener  // nil: transfers are not sealed
}

package tx

import (
	"github.com/splitnic/splitnic/splitdrv/capture"

	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// Options are the settings of a sender. The fields without a comment are those of Config with
// the same names.
type Options struct {
	SendSlots   int
	Batch       int
	BatchBytes  int
	SignalEvery int
	PackCopy    int
	NoPack      bool
	MaxSGE      int            // pieces of a work request that the device takes
	OneTouch    bool           // the sender binds windows around the elements of local pools
	ZeroCopy    *memory.Budget // nil: frames are copied
	Path        *capture.Path  // nil: there is none
	Poll        bool
	Sealer      *seal.Sealer // nil: transfers are sent as they are
}

// tail returns the number of bytes behind a transfer that sealing needs.
func (o *Options) tail() int {
	if o.Sealer == nil {
		return 0
	}
	return seal.Overhead
}

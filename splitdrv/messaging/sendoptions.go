package messaging

import "github.com/splitnic/splitnic/splitdrv/capture"

// sendOptions are the settings of a sender. The fields without a comment are those of Config with
// the same names.
type sendOptions struct {
	SendSlots   int
	Batch       int
	BatchBytes  int
	SignalEvery int
	PackCopy    int
	NoPack      bool
	MaxSGE      int           // pieces of a work request that the device takes
	OneTouch    bool          // the sender binds windows around the elements of local pools
	ZeroCopy    *Budget       // nil: frames are copied
	Path        *capture.Path // nil: there is none
	Poll        bool
}

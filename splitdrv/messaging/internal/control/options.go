package control

import (
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// Options are the settings of the control channel, of the requests on it, and of the
// keep-alives. The fields are those of Config with the same names.
type Options struct {
	TrafficClass uint8
	ServiceLevel uint8
	Poll         bool

	Sealer *seal.Sealer // nil, as Opener: messages are sent as they are
	Opener *seal.Opener

	KeepAlive   time.Duration
	PeerTimeout time.Duration
	AskLast     bool
	OnHears     func(bool)

	OnRequest func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte)
	Pace      func(t protocol.CfgType, data []byte) time.Duration
}

// SlotSize returns the size in bytes of a buffer for a message.
func SlotSize(sealed bool) int {
	if sealed {
		return protocol.MaxControlSize + seal.Overhead
	}
	return protocol.MaxControlSize
}

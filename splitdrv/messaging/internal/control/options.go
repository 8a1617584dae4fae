package control

import (
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// Options are the settings of the control channel, of the requests on it, and of the
// keep-alives. The fields are those of Config with the same names.
type Options struct {
	TrafficClass uint8
	ServiceLevel uint8
	Poll         bool

	KeepAlive   time.Duration
	PeerTimeout time.Duration
	AskLast     bool
	OnHears     func(bool)

	OnRequest func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte)
	Pace      func(t protocol.CfgType, data []byte) time.Duration
}

package host

import (
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// DirectState says how far a direct connection has got.
type DirectState string

// The states.
const (
	DirectOpening     DirectState = "opening"     // frames go through the I/O unit
	DirectEstablished DirectState = "established" // frames go directly
	DirectEnding      DirectState = "ending"      // frames wait until those before have arrived
)

// DirectsStatus is what `splitnic status` shows of direct connections.
type DirectsStatus struct {
	// On says that this host makes them, and Granted that the I/O unit of the present
	// session directs them.
	On          bool           `json:"on"`
	Granted     bool           `json:"granted"`
	Connections []DirectStatus `json:"connections"`
	// Total counts all since the start, those that there are included.
	Total DirectCounts `json:"total"`
	// UplinkFull counts frames for the I/O unit that were dropped because it took none
	// for long while frames went directly, and Markers those that nobody expected.
	UplinkFull uint64 `json:"uplink_full"`
	Markers    uint64 `json:"unexpected_markers"`
}

// DirectStatus describes a direct connection to another host.
type DirectStatus struct {
	ID       session.DirectID  `json:"id"`
	Peer     string            `json:"peer"`     // name of the other host
	Platform protocol.Platform `json:"platform"` // of the other host
	MACs     []protocol.MAC    `json:"macs"`     // of the other host
	Mode     protocol.Mode     `json:"mode"`     // of transfer
	State    DirectState       `json:"state"`
	Since    time.Time         `json:"since"` // of the state
	// Took is how long it took from the offer until frames went directly, 0 before.
	Took   time.Duration `json:"took_ns"`
	Counts DirectCounts  `json:"counts"`
	// Traffic is of the connection's channels; nil while they move no frames.
	Traffic *messaging.Stats `json:"traffic,omitempty"`
}

// DirectCounts are frames of direct connections. In is from the other host.
type DirectCounts struct {
	Ended        uint64 `json:"ended"` // connections
	paths.Counts        // flat in JSON
	Lost         uint64 `json:"lost"`      // were about to be sent when the connection ended
	Uncertain    uint64 `json:"uncertain"` // may or may not have been delivered when it ended
}

func (c DirectCounts) plus(o DirectCounts) DirectCounts {
	c.Ended += o.Ended
	c.Lost += o.Lost
	c.Uncertain += o.Uncertain
	c.OutFrames += o.OutFrames
	c.OutBytes += o.OutBytes
	c.InFrames += o.InFrames
	c.InBytes += o.InBytes
	c.Source += o.Source
	c.Destination += o.Destination
	c.VLAN += o.VLAN
	c.Malformed += o.Malformed
	c.Full += o.Full
	c.Held += o.Held
	return c
}

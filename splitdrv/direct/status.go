package direct

import (
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct/internal/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// State is the state of a direct connection.
type State string

// The states.
const (
	Opening     State = "opening"     // frames go through the I/O unit
	Established State = "established" // frames go directly
	Ending      State = "ending"      // frames wait until earlier ones have arrived
)

// Status is the part of `splitnic status` about direct connections.
type Status struct {
	// On is true if this host makes direct connections, and Granted if the I/O unit of the
	// session in use directs them.
	On          bool               `json:"on"`
	Granted     bool               `json:"granted"`
	Connections []ConnectionStatus `json:"connections"`
	// Total has the sums of all connections since the start, including existing ones.
	Total Counts `json:"total"`
	// UplinkFull counts frames to the I/O unit that were dropped because it accepted none
	// for a long time while frames went directly. Markers counts unexpected markers.
	UplinkFull uint64 `json:"uplink_full"`
	Markers    uint64 `json:"unexpected_markers"`
}

// ConnectionStatus describes a direct connection to another host.
type ConnectionStatus struct {
	ID       session.DirectID  `json:"id"`
	Peer     string            `json:"peer"`     // name of the other host
	Platform protocol.Platform `json:"platform"` // platform of the other host
	MACs     []protocol.MAC    `json:"macs"`     // MAC addresses of the other host
	Mode     protocol.Mode     `json:"mode"`     // transfer mode
	State    State             `json:"state"`
	Since    time.Time         `json:"since"` // begin of the state
	// Took is the time from the offer until frames went directly; 0 before.
	Took   time.Duration `json:"took_ns"`
	Counts Counts        `json:"counts"`
	// Traffic has the statistics of the connection's channels; nil while they move no frames.
	Traffic *messaging.Stats `json:"traffic,omitempty"`
}

// Counts counts frames of direct connections. In means from the other host.
type Counts struct {
	Ended        uint64 `json:"ended"` // number of ended connections
	paths.Counts        // flat in JSON
	Lost         uint64 `json:"lost"`      // in a batch that could not be posted when the connection ended
	Uncertain    uint64 `json:"uncertain"` // sent, and not known to be delivered when the connection ended
}

func (c Counts) plus(o Counts) Counts {
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

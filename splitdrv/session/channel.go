package session

import (
	"encoding/hex"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
)

// GID is a global identifier of an RDMA port, in JSON 32 hexadecimal digits.
type GID [16]byte

// MarshalText encodes the identifier in hexadecimal.
func (g GID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, g[:]), nil }

// UnmarshalText decodes 32 hexadecimal digits.
func (g *GID) UnmarshalText(b []byte) error { return decodeHex("gid", g[:], b) }

// decodeHex decodes as many hexadecimal digits as dst needs. The error does not show more of
// them than one invalid character.
func decodeHex(what string, dst, b []byte) error {
	if len(b) != hex.EncodedLen(len(dst)) {
		return fmt.Errorf("%s of %d characters, must be %d hexadecimal digits", what, len(b), hex.EncodedLen(len(dst)))
	}
	if _, err := hex.Decode(dst, b); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Channel is the address of one side's queue pair of a channel.
type Channel struct {
	QPN uint32 `json:"qpn"`
	PSN uint32 `json:"psn"`
	GID GID    `json:"gid"`
	LID uint16 `json:"lid"`
	MTU int    `json:"mtu"`
}

// Channels returns the channels whose queue pairs have the given addresses, in order.
func Channels(addresses []fabric.Address) []Channel {
	channels := make([]Channel, 0, len(addresses))
	for _, a := range addresses {
		channels = append(channels, Channel{QPN: a.QPN, PSN: a.PSN, GID: a.GID, LID: a.LID, MTU: a.MTU})
	}
	return channels
}

// Address returns the address for fabric.QP.Connect.
func (c Channel) Address() fabric.Address {
	return fabric.Address{GID: c.GID, LID: c.LID, QPN: c.QPN, PSN: c.PSN, MTU: c.MTU}
}

// Addresses returns the addresses of the channels' queue pairs, in order.
func Addresses(channels []Channel) []fabric.Address {
	addresses := make([]fabric.Address, 0, len(channels))
	for _, c := range channels {
		addresses = append(addresses, c.Address())
	}
	return addresses
}

const (
	maxNumber24 = 1<<24 - 1 // largest queue-pair number or packet sequence number
	minQPN      = 2         // 0 and 1 are for subnet and general management
	maxQPN      = maxNumber24 - 1
)

func (c Channel) validate() error {
	switch {
	case c.QPN < minQPN || c.QPN > maxQPN:
		return invalid("qpn", c.QPN, "must be %d to %d", minQPN, maxQPN)
	case c.PSN > maxNumber24:
		return invalid("psn", c.PSN, "must be at most %d", maxNumber24)
	case c.MTU < 256 || c.MTU > 4096 || c.MTU&(c.MTU-1) != 0:
		return invalid("mtu", c.MTU, "must be 256, 512, 1024, 2048 or 4096")
	}
	return nil
}

// validateChannels checks the control channel and the queues' data channels.
func validateChannels(channels []Channel, queues int) error {
	if len(channels) != queues+1 {
		return invalid("channels", len(channels), "must be %d for %d queues", queues+1, queues)
	}
	seen := make(map[uint32]bool, len(channels))
	for i, c := range channels {
		if err := c.validate(); err != nil {
			return fmt.Errorf("channel %d: %w", i, err)
		}
		if seen[c.QPN] {
			return fmt.Errorf("channel %d: %w", i, invalid("qpn", c.QPN, "is another channel's already"))
		}
		seen[c.QPN] = true
	}
	return nil
}

package session

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// DirectStep is the kind of a message about a direct connection. The steps from offer to
// start follow each other in this order.
type DirectStep string

// The steps.
const (
	DirectOffer   DirectStep = "offer"   // I/O unit → both hosts: create queue pairs for the other host
	DirectAccept  DirectStep = "accept"  // host → I/O unit: addresses of its queue pairs
	DirectConnect DirectStep = "connect" // I/O unit → both hosts: addresses of the other host's queue pairs
	DirectReady   DirectStep = "ready"   // host → I/O unit: its queue pairs are connected
	DirectStart   DirectStep = "start"   // I/O unit → both hosts: the queue pairs of both are connected
	DirectEnd     DirectStep = "end"     // either way, at any time: end the connection
	DirectEnded   DirectStep = "ended"   // host → I/O unit → other host: all its frames are delivered
	DirectHeld    DirectStep = "held"    // host → another I/O unit: the connection exists from before the session
	DirectKeep    DirectStep = "keep"    // I/O unit → both hosts: the held connection may continue
)

// DirectID identifies a direct connection. The I/O unit chooses it at random; it is not 0.
// In JSON it has 16 hexadecimal digits.
type DirectID uint64

// String returns 16 hexadecimal digits.
func (d DirectID) String() string { return fmt.Sprintf("%016x", uint64(d)) }

// MarshalText implements encoding.TextMarshaler.
func (d DirectID) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *DirectID) UnmarshalText(b []byte) error {
	var raw [8]byte
	if err := decodeHex("identifier", raw[:], b); err != nil {
		return err
	}
	*d = DirectID(binary.BigEndian.Uint64(raw[:]))
	return nil
}

// DirectSecret is a secret of the I/O unit and the two hosts of a direct connection. It is
// used like the secret of the bootstrap connection in a session: each host proves with its
// first message that it has the secret.
type DirectSecret [BindingSize]byte

// String does not show the secret.
func (DirectSecret) String() string { return "secret of a direct connection" }

// GoString implements fmt.GoStringer, and does not show the secret.
func (DirectSecret) GoString() string { return "session.DirectSecret" }

// MarshalText implements encoding.TextMarshaler.
func (s DirectSecret) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *DirectSecret) UnmarshalText(b []byte) error { return decodeHex("secret", s[:], b) }

// DirectPeer describes the other host of a direct connection, according to the I/O unit.
type DirectPeer struct {
	Platform protocol.Platform `json:"platform"`
	Name     string            `json:"name"` // for display; of a host with another key not chosen by it
	MACs     []protocol.MAC    `json:"macs"` // addresses of the host, from which it may send
	// Own are the addresses of this host that the other host knows.
	Own   []protocol.MAC   `json:"own"`
	VLANs protocol.VLANSet `json:"vlans"` // VLANs of tagged frames that may pass, either way
}

// MaxDirectAddresses is the largest number of addresses of a host with direct connections.
const MaxDirectAddresses = 64

// Equal reports whether both descriptions are equal. Names do not matter: I/O units can trust the same
// key under different ones.
func (p *DirectPeer) Equal(o *DirectPeer) bool {
	return p.Platform == o.Platform && slices.Equal(p.MACs, o.MACs) && slices.Equal(p.Own, o.Own) && p.VLANs == o.VLANs
}

func (p *DirectPeer) validate() error {
	if p.Platform == 0 {
		return invalid("platform", p.Platform, "must not be zero")
	}
	if !ValidName(p.Name) {
		return invalid("name", p.Name, "must be 1 to %d letters, digits, '.', '_' or '-'", identity.MaxNameLength)
	}
	if !validAddresses(p.MACs) {
		return invalid("macs", p.MACs, "must be 1 to %d unicast addresses", MaxDirectAddresses)
	}
	if !validAddresses(p.Own) {
		return invalid("own", p.Own, "must be 1 to %d unicast addresses", MaxDirectAddresses)
	}
	for _, m := range p.MACs {
		if slices.Contains(p.Own, m) {
			return invalid("macs", m, "is this host's own")
		}
	}
	return nil
}

func validAddresses(macs []protocol.MAC) bool {
	invalid := func(m protocol.MAC) bool { return !m.Valid() }
	return len(macs) > 0 && len(macs) <= MaxDirectAddresses && !slices.ContainsFunc(macs, invalid)
}

// Direct is a message about a direct connection between two hosts. It is sent over the
// bootstrap connection of an established session with the feature direct. Its step
// determines which fields it has.
type Direct struct {
	Step DirectStep `json:"step"`
	ID   DirectID   `json:"id"`

	Peer *DirectPeer `json:"peer,omitempty"` // offer and keep

	// offer:

	Mode     protocol.Mode `json:"mode,omitempty"`     // transfer mode
	MTU      int           `json:"mtu,omitempty"`      // MTU of both netdevices
	Pools    int           `json:"pools,omitempty"`    // most pools that each side lends
	Features []string      `json:"features,omitempty"` // features about channels that both hosts have
	Cipher   seal.Cipher   `json:"cipher,omitempty"`   // of all frames and messages; "": they are not encrypted
	Secret   *DirectSecret `json:"secret,omitempty"`
	// First is true for one of both hosts, which is the host in the proofs.
	First bool `json:"first,omitempty"`

	// accept and connect: the control channel and the data channel

	ControlReceives int       `json:"control_receives,omitempty"`
	Channels        []Channel `json:"channels,omitempty"`

	// Platform is that of the other host; held.
	Platform protocol.Platform `json:"platform,omitzero"`
	// Reason is for display; end.
	Reason string `json:"reason,omitempty"`
}

// directQueues is the number of data channels of a direct connection.
const directQueues = 1

// validate checks a message, and that its sender may send it.
func (d *Direct) validate(fromUnit bool) error {
	if d.ID == 0 {
		return invalid("id", d.ID, "must not be zero")
	}
	if d.Peer != nil {
		if err := d.Peer.validate(); err != nil {
			return err
		}
	}
	byUnit, byHost := false, false
	switch d.Step {
	case DirectOffer:
		byUnit = true
		switch {
		case d.Peer == nil || d.Secret == nil:
			return invalid("step", d.Step, "must come with a peer and a secret")
		case !d.Mode.Known():
			return invalid("mode", d.Mode, "must be a transfer mode")
		case d.MTU < protocol.MinMTU || d.MTU > protocol.MaxMTU:
			return invalid("mtu", d.MTU, "must be %d to %d", protocol.MinMTU, protocol.MaxMTU)
		case d.Pools < 1 || d.Pools > d.Mode.MaxPools():
			return invalid("pools", d.Pools, "must be 1 to %d in mode %s", d.Mode.MaxPools(), d.Mode)
		}
		if d.Cipher != "" && !identity.ValidWord(string(d.Cipher)) {
			return invalid("cipher", d.Cipher, "must be a word")
		}
		if d.Cipher != "" && slices.Contains(d.Features, protocol.FeatureKeySend) {
			return invalid("features", protocol.FeatureKeySend, "must not be there with encryption")
		}
		if err := validateFeatures(d.Features); err != nil {
			return err
		}
	case DirectAccept, DirectConnect:
		byUnit, byHost = d.Step == DirectConnect, d.Step == DirectAccept
		if d.ControlReceives < 1 || d.ControlReceives > MaxControlReceives {
			return invalid("control_receives", d.ControlReceives, "must be 1 to %d", MaxControlReceives)
		}
		if err := validateChannels(d.Channels, directQueues); err != nil {
			return err
		}
	case DirectReady:
		byHost = true
	case DirectStart:
		byUnit = true
	case DirectEnd, DirectEnded:
		byUnit, byHost = true, true
		if text(d.Reason) != d.Reason {
			return invalid("reason", d.Reason, "must be at most %d printable characters", maxText)
		}
	case DirectHeld:
		byHost = true
		if d.Platform == 0 {
			return invalid("platform", d.Platform, "must not be zero")
		}
	case DirectKeep:
		byUnit = true
		if d.Peer == nil {
			return invalid("step", d.Step, "must come with a peer")
		}
	default:
		return invalid("step", d.Step, "is not known")
	}
	if fromUnit && !byUnit || !fromUnit && !byHost {
		return invalid("step", d.Step, "is not for this side to say")
	}
	return nil
}

type directMessage struct {
	Type string `json:"type"`
	Direct
}

func decodeDirect(b []byte, fromUnit bool) (*Direct, error) {
	d, err := decode[Direct](b)
	if err != nil {
		return nil, err
	}
	return &d, d.validate(fromUnit)
}

// The limit for messages about direct connections that are read: at once, and per second in
// the long run. Further messages wait at the sender.
const (
	directBurst = 4096
	directRate  = 500
)

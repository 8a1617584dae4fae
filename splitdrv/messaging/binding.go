package messaging

import (
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Binding ties the channels of a session to the connection over which their addresses were
// exchanged. Its string methods do not show the secret.
type Binding struct {
	secret [32]byte
	host   bool
}

// NewBinding returns the binding of the host's side, or of the I/O unit's side, of a
// connection. secret must be known only to its two sides.
func NewBinding(secret [32]byte, host bool) *Binding { return &Binding{secret: secret, host: host} }

func (b Binding) String() string { return "binding" }

// GoString implements fmt.GoStringer.
func (b Binding) GoString() string { return "messaging.Binding" }

// Proofs returns the proof that this side has to send first on the control channel, and the
// one that it has to receive first. own and remote are the addresses of the queue pairs of
// both sides, in the order of Conn.Addresses.
func (b *Binding) Proofs(own, remote []fabric.Address) (ours, theirs protocol.Proof) {
	host, unit := boundChannels(own), boundChannels(remote)
	if !b.host {
		host, unit = unit, host
	}
	ours = protocol.MakeProof(b.secret[:], b.host, host, unit)
	theirs = protocol.MakeProof(b.secret[:], !b.host, host, unit)
	return ours, theirs
}

func boundChannels(addresses []fabric.Address) []protocol.BoundChannel {
	channels := make([]protocol.BoundChannel, len(addresses))
	for i, addr := range addresses {
		channels[i] = protocol.BoundChannel{QPN: addr.QPN, PSN: addr.PSN, LID: addr.LID, GID: addr.GID}
	}
	return channels
}

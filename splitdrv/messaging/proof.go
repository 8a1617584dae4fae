package messaging

import (
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Binding is what ties a session's channels to the connection over which their
// addresses were exchanged. It prints nothing of its secret.
type Binding struct {
	secret [32]byte
	host   bool
}

// NewBinding is for the host's side of a connection, or else the I/O unit's,
// of which both sides know the secret, and nobody else does.
func NewBinding(secret [32]byte, host bool) *Binding { return &Binding{secret: secret, host: host} }

// String implements fmt.Stringer.
func (b Binding) String() string { return "binding" }

// GoString is for %#v.
func (b Binding) GoString() string { return "messaging.Binding" }

// Proofs are what this side has to send first on its control channel, and what
// it has to hear first there, given both sides' queue pairs in the order of
// Conn.Addresses.
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
	for i, a := range addresses {
		channels[i] = protocol.BoundChannel{QPN: a.QPN, PSN: a.PSN, LID: a.LID, GID: a.GID}
	}
	return channels
}

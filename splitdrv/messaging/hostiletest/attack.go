package hostiletest

import (
	"slices"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// Attack is one thing that a peer can do wrong.
type Attack struct {
	Name  string
	Modes []protocol.Mode // in which it can be done

	// What comes of it. With a Code the session ends, because the rule of that
	// name was broken on that Channel; 0 is the control channel. With Refused
	// the attacker's own device reports one of these, and the session ends
	// because its queue pair has failed. Dropped is that of an unreliable queue
	// pair, where the attacker's device hears nothing and the session's may fail
	// or just drop the message. A Silent attacker sends nothing, for which the
	// session ends without a rule that was broken. With none of these nothing happens at all.
	Code    string
	Channel int
	Refused []fabric.Status
	Dropped bool
	Silent  bool

	// Delivered is how many good frames get through before.
	Delivered int
	// Local attacks need a session in the same process.
	Local bool

	do         func(p *Peer)
	prepare    func(v *victim, cfg *messaging.Config)
	oneReceive bool
	unbound    bool // the attack is instead of the proof, or before it
}

// Do attacks. The Peer must have Started.
func (a *Attack) Do(p *Peer) {
	p.t.Helper()
	a.do(p)
}

// In reports whether the attack can be done in a mode.
func (a *Attack) In(mode protocol.Mode) bool { return slices.Contains(a.Modes, mode) }

var (
	everywhere = protocol.Modes()
	writing    = []protocol.Mode{protocol.ModeImm, protocol.ModeIndicate}
	sending    = []protocol.Mode{protocol.ModeSend, protocol.ModeSendUC}
	onlyImm    = []protocol.Mode{protocol.ModeImm}
	onlyInd    = []protocol.Mode{protocol.ModeIndicate}
	onlyRC     = []protocol.Mode{protocol.ModeSend}
	onlyUC     = []protocol.Mode{protocol.ModeSendUC}
	reliable   = []protocol.Mode{protocol.ModeImm, protocol.ModeIndicate, protocol.ModeSend}
)

package hostiletest

import (
	"slices"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Attack is one thing that a peer can do wrong.
type Attack struct {
	Name  string
	Modes []protocol.Mode // modes in which it can be done

	// The expected result. With Code, the session ends because the rule with this code was broken
	// on Channel; 0 is the control channel. With Refused, the attacker's own device reports one of
	// these statuses, and the session ends because its queue pair has failed. Dropped is for
	// unreliable queue pairs: the attacker's device reports no error, and the session's queue pair
	// may fail or just drop the message. With none of these, nothing
	// happens.
	Code    string
	Channel int
	Refused []fabric.Status
	Dropped bool

	// Delivered is the number of valid frames delivered before the attack takes effect.
	Delivered int

	do func(p *Peer)
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
	sending    = modes(protocol.Mode.Sends)
	writing    = except(sending)
	onlyImm    = modes(protocol.Mode.Immediate)
	onlyInd    = modes(protocol.Mode.Indicated)
	reliable   = except(modes(protocol.Mode.Lossy))
	onlyRC     = modes(func(m protocol.Mode) bool { return m.Sends() && !m.Lossy() })
	onlyUC     = modes(func(m protocol.Mode) bool { return m.Sends() && m.Lossy() })
)

func modes(do func(protocol.Mode) bool) []protocol.Mode {
	return slices.DeleteFunc(protocol.Modes(), func(m protocol.Mode) bool { return !do(m) })
}

func except(some []protocol.Mode) []protocol.Mode {
	return modes(func(m protocol.Mode) bool { return !slices.Contains(some, m) })
}

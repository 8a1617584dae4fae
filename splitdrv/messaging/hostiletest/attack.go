package hostiletest

import (
	"slices"

	"github.com/splitnic/splitnic/bufpool"
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

// Attacks are all of them.
func Attacks() []Attack {
	return slices.Concat(formOfControl(), formOfData(), poolsAndUpdates(), flushes(), requests(), writes(), indications(),
		sequences(), packs(), devices(), windows(), proofs(), tolerated())
}

// rules are what stands behind the codes.
var rules = map[string]error{
	"short-message":     protocol.ErrShort,
	"long-message":      protocol.ErrLong,
	"trailing-bytes":    protocol.ErrTrailing,
	"version":           protocol.ErrVersion,
	"function":          protocol.ErrFunction,
	"count":             protocol.ErrCount,
	"size":              protocol.ErrSize,
	"address-overflow":  protocol.ErrOverflow,
	"padding":           protocol.ErrPadding,
	"pool-reference":    protocol.ErrPool,
	"pool-channel":      protocol.ErrChannel,
	"pool-memory":       protocol.ErrMemory,
	"not-lent":          bufpool.ErrNotLent,
	"length":            bufpool.ErrLength,
	"not-out":           bufpool.ErrNotOut,
	"data-send":         messaging.ErrDataSend,
	"pool-unknown":      bufpool.ErrPool,
	"indicated-length":  messaging.ErrIndicatedLength,
	"frame":             messaging.ErrFrame,
	"pool-twice":        bufpool.ErrPoolTwice,
	"too-many-pools":    bufpool.ErrTooManyPools,
	"too-many-elements": bufpool.ErrTooManyElements,
	"no-channel":        messaging.ErrNoChannel,
	"too-many-requests": messaging.ErrTooManyRequests,
	"reply":             bufpool.ErrReply,
	"unexpected":        messaging.ErrUnexpected,
	"immediate":         messaging.ErrImmediate,
	"indications":       messaging.ErrIndications,
	"sequence":          messaging.ErrSequence,
	"too-many-flushes":  bufpool.ErrTooManyFlushes,
	"proof-missing":     messaging.ErrProofMissing,
	"proof-wrong":       messaging.ErrProofWrong,
	"invalidated":       bufpool.ErrInvalidated,
	"pool-keys":         bufpool.ErrKeys,
	"key-message":       bufpool.ErrKeyMessage,
}

// meaningless says in which modes a rule cannot be broken: no message or
// transfer of theirs comes under it, or the device is the first to refuse.
var meaningless = map[string][]protocol.Mode{
	"long-message":      writing, // receives are as long as the longest message
	"pool-memory":       writing,
	"too-many-elements": sending, // the longest pool alone has as many
	"length":            sending, // a receive is as long as the element
	"data-send":         sending,
	"indicated-length":  {protocol.ModeIndicate, protocol.ModeSend, protocol.ModeSendUC},
	"immediate":         onlyImm,
	"indications":       sending,
	"sequence":          writing,
	"too-many-flushes":  sending,
	"pool-keys":         sending,
	"key-message":       sending,
	"invalidated":       sending, // there are no windows; the device refuses
}

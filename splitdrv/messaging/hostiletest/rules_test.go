package hostiletest

import (
	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// rules has the errors of the rules, by code.
var rules = map[string]error{
	"short-message":       protocol.ErrShort,
	"long-message":        protocol.ErrLong,
	"trailing-bytes":      protocol.ErrTrailing,
	"version":             protocol.ErrVersion,
	"function":            protocol.ErrFunction,
	"count":               protocol.ErrCount,
	"size":                protocol.ErrSize,
	"address-overflow":    protocol.ErrOverflow,
	"padding":             protocol.ErrPadding,
	"pool-reference":      protocol.ErrPool,
	"pool-channel":        protocol.ErrChannel,
	"pool-memory":         protocol.ErrMemory,
	"not-lent":            bufpool.ErrNotLent,
	"length":              bufpool.ErrLength,
	"not-out":             bufpool.ErrNotOut,
	"data-send":           messaging.ErrDataSend,
	"pool-unknown":        bufpool.ErrPool,
	"indicated-length":    messaging.ErrIndicatedLength,
	"frame":               messaging.ErrFrame,
	"pool-twice":          bufpool.ErrPoolTwice,
	"too-many-pools":      bufpool.ErrTooManyPools,
	"too-many-elements":   bufpool.ErrTooManyElements,
	"no-channel":          messaging.ErrNoChannel,
	"too-many-requests":   messaging.ErrTooManyRequests,
	"reply":               bufpool.ErrReply,
	"unexpected":          messaging.ErrUnexpected,
	"immediate":           messaging.ErrImmediate,
	"indications":         messaging.ErrIndications,
	"needless-indication": messaging.ErrNeedless,
	"sequence":            messaging.ErrSequence,
	"too-many-flushes":    bufpool.ErrTooManyFlushes,
	"proof-missing":       messaging.ErrProofMissing,
	"proof-wrong":         messaging.ErrProofWrong,
	"path-missing":        messaging.ErrPathMissing,
	"invalidated":         bufpool.ErrInvalidated,
	"pool-keys":           bufpool.ErrKeys,
	"key-message":         bufpool.ErrKeyMessage,
	"not-authentic":       messaging.ErrNotAuthentic,
}

// meaningless has the modes in which a rule cannot be broken, by code: the rule applies to no
// message or transfer of the mode, or the device refuses first.
var meaningless = map[string][]protocol.Mode{
	"long-message":        writing, // receives are as long as the longest message
	"pool-memory":         writing,
	"too-many-elements":   sending, // the longest pool alone has as many
	"length":              sending, // a receive is as long as the element
	"data-send":           sending,
	"indicated-length":    except(onlyImm),
	"immediate":           onlyImm,
	"indications":         sending,
	"needless-indication": except(onlyImm),
	"sequence":            writing,
	"too-many-flushes":    sending,
	"pool-keys":           sending,
	"key-message":         sending,
	"not-authentic":       protocol.Modes(), // without encryption: see TestSealedTampered of package messaging
	"invalidated":         sending,          // there are no windows; the device refuses
}

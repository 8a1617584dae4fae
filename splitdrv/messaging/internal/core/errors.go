package core

import (
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// The rules that a peer can break, besides those that packages protocol and bufpool check. A
// *ProtocolError wraps each of them.
var (
	ErrDataSend        = errors.New("message on a data channel that is not an RDMA write with immediate data")
	ErrIndicatedLength = errors.New("indicated length is not the written one")
	ErrFrame           = errors.New("malformed frame")
	ErrNoChannel       = errors.New("data channel that the session does not have")
	ErrTooManyRequests = errors.New("more unanswered requests than agreed")
	ErrUnexpected      = errors.New("message that has no place here")
	ErrImmediate       = errors.New("immediate data in a mode without")
	ErrIndications     = errors.New("more indications than elements")
	ErrNeedless        = errors.New("message about a transfer that immediate data can indicate")
	ErrSequence        = errors.New("message out of sequence")
	ErrProofMissing    = errors.New("no proof that the queue pairs are those of the authenticated connection")
	ErrPathMissing     = errors.New("no message of the length of the path MTU after the proof")
	ErrProofWrong      = errors.New("wrong proof that the queue pairs are those of the authenticated connection")
)

// ErrPeerSilent ends a session whose peer has sent nothing for Config.PeerTimeout.
var ErrPeerSilent = errors.New("the peer is silent")

// ErrPathMTU ends a session whose path MTU the port no longer has: packets that are longer than
// its netdevice allows do not get through.
var ErrPathMTU = errors.New("the port's MTU is below the path MTU of the session")

// ErrControlReceives is returned by Connect when the peer posts too few
// receives on its control channel for the pools that this side lends.
var ErrControlReceives = errors.New("too few receives on the peer's control channel")

// ProtocolError ends a session because the peer broke the protocol. It wraps
// the rule that was broken.
type ProtocolError struct {
	Channel int    // 0 is the control channel
	Value   string // what the peer sent
	Rule    error
}

func (e *ProtocolError) Error() string {
	where := "the control channel"
	if e.Channel > 0 {
		where = fmt.Sprintf("data channel %d", e.Channel)
	}
	return fmt.Sprintf("the peer broke the protocol on %s: %v: %s", where, e.Rule, e.Value)
}

func (e *ProtocolError) Unwrap() error { return e.Rule }

// rules are the rules that a peer can break, by their stable names.
var rules = []struct {
	code string
	rule error
}{
	{"short-message", protocol.ErrShort},
	{"long-message", protocol.ErrLong},
	{"trailing-bytes", protocol.ErrTrailing},
	{"version", protocol.ErrVersion},
	{"function", protocol.ErrFunction},
	{"count", protocol.ErrCount},
	{"size", protocol.ErrSize},
	{"address-overflow", protocol.ErrOverflow},
	{"padding", protocol.ErrPadding},
	{"pool-reference", protocol.ErrPool},
	{"pool-channel", protocol.ErrChannel},
	{"pool-memory", protocol.ErrMemory},
	{"not-lent", bufpool.ErrNotLent},
	{"length", bufpool.ErrLength},
	{"not-out", bufpool.ErrNotOut},
	{"data-send", ErrDataSend},
	{"pool-unknown", bufpool.ErrPool},
	{"indicated-length", ErrIndicatedLength},
	{"frame", ErrFrame},
	{"pool-twice", bufpool.ErrPoolTwice},
	{"too-many-pools", bufpool.ErrTooManyPools},
	{"too-many-elements", bufpool.ErrTooManyElements},
	{"no-channel", ErrNoChannel},
	{"too-many-requests", ErrTooManyRequests},
	{"reply", bufpool.ErrReply},
	{"unexpected", ErrUnexpected},
	{"immediate", ErrImmediate},
	{"indications", ErrIndications},
	{"needless-indication", ErrNeedless},
	{"sequence", ErrSequence},
	{"too-many-flushes", bufpool.ErrTooManyFlushes},
	{"proof-missing", ErrProofMissing},
	{"proof-wrong", ErrProofWrong},
	{"path-missing", ErrPathMissing},
	{"invalidated", bufpool.ErrInvalidated},
	{"pool-keys", bufpool.ErrKeys},
	{"key-message", bufpool.ErrKeyMessage},
	{"not-authentic", seal.ErrNotAuthentic},
}

// Codes has the names of all rules that a peer can break, for counters.
func Codes() []string {
	codes := make([]string, 0, len(rules))
	for _, r := range rules {
		codes = append(codes, r.code)
	}
	return codes
}

// Code returns the stable name of the rule, one of Codes.
func (e *ProtocolError) Code() string {
	for _, r := range rules {
		if errors.Is(e.Rule, r.rule) {
			return r.code
		}
	}
	return "unexpected"
}

// ChannelViolation returns the error of a peer that broke a rule on a data channel.
func ChannelViolation(channel int, rule error, format string, args ...any) error {
	return &ProtocolError{Channel: channel, Value: fmt.Sprintf(format, args...), Rule: rule}
}

// ControlViolation returns the error of a peer that broke a rule on the control channel.
func ControlViolation(rule error, format string, args ...any) error {
	return ChannelViolation(0, rule, format, args...)
}

// SendFailure returns the error of a failed request of a data channel, or of the control channel, 0.
func SendFailure(channel int, c *fabric.Completion) error {
	switch {
	case channel == 0:
		return fmt.Errorf("message on the control channel: %w", c.Err())
	case c.Status == fabric.StatusMWBindErr:
		return fmt.Errorf("bind a memory window on data channel %d: %w", channel, c.Err())
	default:
		return fmt.Errorf("transfer on data channel %d: %w", channel, c.Err())
	}
}

package iounit

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// endings are the reasons for the end of established sessions, with stable names.
var endings = []struct {
	name string
	is   func(error) bool
}{
	{"protocol", func(err error) bool { return brokenRule(err) != "" }},
	{"replaced", func(err error) bool { return errors.Is(err, errReplaced) }},
	{"disconnected", func(err error) bool { return errors.Is(err, errDisconnected) }},
	{"shutting-down", func(err error) bool { return errors.Is(err, errShuttingDown) }},
	{"policy", func(err error) bool { return errors.Is(err, errPolicy) }},
	{"revoked", revoked("revoked")},
	{"expired", revoked("expired")},
	{"untrusted", revoked("untrusted")},
	{"bye", func(err error) bool { return errors.As(err, new(*session.ByeError)) }},
	{"gone", func(err error) bool { return errors.Is(err, session.ErrPeerGone) }},
	{"silent", func(err error) bool { return errors.Is(err, messaging.ErrPeerSilent) }},
	{"device", func(err error) bool { return errors.Is(err, device.ErrGone) }},
	// The fabric has failed, or the device has refused a write of the host: one outside of
	// lent memory, or with an invalid key, ends the queue pair and has no other effect.
	{"queue-pair", func(err error) bool {
		return errors.As(err, new(*fabric.WCError)) || errors.As(err, new(*device.EventError))
	}},
}

// revoked returns a function that reports whether a session has ended because the host's key
// is no longer trusted, for the reason why.
func revoked(why string) func(error) bool {
	return func(err error) bool {
		return errors.As(err, new(*session.RevokedError)) && session.Reason(err) == why
	}
}

// endingOther is the name of all other reasons.
const endingOther = "other"

// Endings returns the reasons by which the ends of established sessions are counted.
func Endings() []string {
	var names []string
	for _, e := range endings {
		names = append(names, e.name)
	}
	return append(names, endingOther)
}

// ending returns the name of the reason for which a session has ended.
func ending(err error) string {
	for _, e := range endings {
		if e.is(err) {
			return e.name
		}
	}
	return endingOther
}

// severity returns the level at which the end of an established session is logged. It is not
// a warning if it was ordered, here or at the host, which stops or switches to another I/O
// unit.
func severity(err error) slog.Level {
	var bye *session.ByeError
	switch {
	case brokenRule(err) != "":
		return slog.LevelWarn
	case errors.Is(err, errShuttingDown), errors.Is(err, errDisconnected),
		errors.As(err, &bye) && bye.Code == session.CodeShuttingDown:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// bootstrap is the prefix of rules that concern the bootstrap connection of a session.
const bootstrap = "bootstrap-"

// Rules returns the rules that a host can break once its session is established:
// messaging.Codes, and those of the bootstrap connection.
func Rules() []string {
	rules := messaging.Codes()
	for _, err := range bootstrapRules {
		rules = append(rules, bootstrap+session.Reason(err))
	}
	return rules
}

var bootstrapRules = []error{session.ErrFrame, session.ErrMessage, session.ErrUnexpected}

// brokenRule returns the name of the rule that a host has broken, or "" if err does not mean
// that.
func brokenRule(err error) string {
	var broken *messaging.ProtocolError
	switch {
	case errors.As(err, &broken):
		return broken.Code()
	case slices.ContainsFunc(bootstrapRules, func(r error) bool { return errors.Is(err, r) }):
		return bootstrap + session.Reason(err)
	default:
		return ""
	}
}

package iounit

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// endings are what established sessions end for, by stable names.
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
	// The fabric broke, or the device refused what the host tried at our memory:
	// a write outside of what was lent, or with a key that is not valid (any more)
	// there, ends the queue pair and reaches nothing.
	{"queue-pair", func(err error) bool { return errors.As(err, new(*fabric.WCError)) }},
}

// revoked is for sessions of hosts whose keys are trusted no longer, by why that
// is so.
func revoked(why string) func(error) bool {
	return func(err error) bool {
		return errors.As(err, new(*session.RevokedError)) && session.Reason(err) == why
	}
}

// endingOther is the name of every other reason.
const endingOther = "other"

// Endings are the names by which sessions are counted that were established and
// have ended.
func Endings() []string {
	var names []string
	for _, e := range endings {
		names = append(names, e.name)
	}
	return append(names, endingOther)
}

// ending is the name of the reason for which a session ended.
func ending(err error) string {
	for _, e := range endings {
		if e.is(err) {
			return e.name
		}
	}
	return endingOther
}

// severity is how much the end of an established session matters to whoever looks for
// warnings: little if somebody has ordered it, here or at the host, which ends or goes over to
// another I/O unit.
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

// bootstrap precedes the names of rules that are broken on the bootstrap
// connection of a session.
const bootstrap = "bootstrap-"

// Rules are those that a host can break once its session is established:
// messaging.Codes, and those of the bootstrap connection.
func Rules() []string {
	rules := messaging.Codes()
	for _, err := range bootstrapRules {
		rules = append(rules, bootstrap+session.Reason(err))
	}
	return rules
}

var bootstrapRules = []error{session.ErrFrame, session.ErrMessage, session.ErrUnexpected}

// brokenRule is the name of the rule that a host broke, "" if that is not what err
// is about.
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

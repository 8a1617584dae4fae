package iounit

import (
	"errors"

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
	{"shutting-down", func(err error) bool { return errors.Is(err, errShuttingDown) }},
	{"bye", func(err error) bool { return errors.As(err, new(*session.ByeError)) }},
	{"gone", func(err error) bool { return errors.Is(err, session.ErrPeerGone) }},
	{"silent", func(err error) bool { return errors.Is(err, messaging.ErrPeerSilent) }},
	// The fabric broke, or the device refused what the host tried at our memory:
	// a write outside of what was lent, or with a key that is not valid (any more)
	// there, ends the queue pair and reaches nothing.
	{"queue-pair", func(err error) bool { return errors.As(err, new(*fabric.WCError)) }},
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

// count counts the end of an established session.
func (u *Unit) count(ending string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended[ending]++
}

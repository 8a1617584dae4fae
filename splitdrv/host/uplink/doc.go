// Package uplink decides which of its I/O units a host uses: whom to try, in which
// order and when, when to wait, what to keep on standby, and what a fail-over was.
//
// It knows I/O units by their addresses. The methods are events; they return Actions,
// and do nothing themselves: there is no goroutine, lock, clock or network here, and time
// is an argument. Package host dials, opens and ends sessions as it is told, and says how
// that went.
//
// What happens when an I/O unit is lost: Candidates.After is the order in which the
// others are tried, a Race finds the first one that can be had, a Standby keeps one
// ready before, a Backoff says how long to wait when none can be had, and Failovers
// counts what it cost.
package uplink

// Action is what is to be done.
type Action struct {
	Do   Verb
	Unit string
}

// actions are those that an event has caused.
type actions []Action

func (a *actions) act(do Verb, unit string) { *a = append(*a, Action{do, unit}) }

// done ends the event.
func (a *actions) done() []Action {
	all := *a
	*a = nil
	return all
}

// Verb says what is to be done.
type Verb int

// What is to be done.
const (
	Dial       Verb = iota // connect to an I/O unit and authenticate it
	Open                   // open a session with an I/O unit that was dialled
	Abandon                // end the opening of a session: another one can be had
	Prepare                // make a session on standby
	AbandonAll             // end the preparing of sessions on standby
	Hold                   // the session prepared is the one on standby
	Retire                 // end a session that was prepared
	Drop                   // end the session on standby
	Switch                 // put the session on standby to use
	Report                 // say why there is no session on standby
)

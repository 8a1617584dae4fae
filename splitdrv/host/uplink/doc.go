// Package uplink decides which I/O unit a host uses: which ones are tried, in which order
// and when, how long to wait, and what is kept on standby. It also counts fail-overs.
//
// I/O units are identified by their addresses. The methods are events, which return Actions.
// The package has no goroutine, lock, clock or network; time is an argument. Package host
// dials, opens and ends sessions as the actions say, and reports the results.
//
// When an I/O unit is lost: Candidates.After is the order in which the others are tried,
// Race finds the first one that is available, Standby has kept one ready, Backoff determines
// the pause if none is available, and Failovers counts the effects.
package uplink

// Action is something for package host to do.
type Action struct {
	Do   Verb
	Unit string
}

// actions collects the actions of an event.
type actions []Action

func (a *actions) act(do Verb, unit string) { *a = append(*a, Action{do, unit}) }

// done returns the actions of the event.
func (a *actions) done() []Action {
	all := *a
	*a = nil
	return all
}

// Verb is the kind of an action.
type Verb int

// The kinds of actions.
const (
	Dial       Verb = iota // connect to an I/O unit and authenticate it
	Open                   // open a session with an I/O unit that was dialled
	Abandon                // give up opening a session: another one is available
	Prepare                // open a session for standby
	AbandonAll             // give up opening sessions for standby
	Hold                   // make the prepared session the one on standby
	Retire                 // end a prepared session
	Drop                   // end the session on standby
	Switch                 // switch to the session on standby
	Report                 // report why there is no session on standby
)

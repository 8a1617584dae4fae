// Package uplink decides which I/O unit a host uses: which ones are tried, in which order
// and when, how long to wait, and what is kept on standby. It also counts fail-overs.
//
// I/O units are identified by their addresses. The package has two state machines, Race and
// Standby. Their methods are events, which return what package host has to do: it dials, opens
// and ends sessions, and reports the results. The package has no goroutine, lock, clock or
// network; time is an argument.
//
// When an I/O unit is lost: Candidates.After is the order in which the others are tried,
// Race finds the first one that is available, Standby has kept one ready, Backoff determines
// the pause if none is available, and Failovers counts the effects.
package uplink

// actions collects the actions of an event.
type actions[A any] []A

func (a *actions[A]) act(one A) { *a = append(*a, one) }

func (a *actions[A]) done() []A {
	all := *a
	*a = nil
	return all
}

package uplink

import (
	"slices"
	"time"
)

// The times after which another I/O unit is tried in parallel.
const (
	// headStart counts from the dial. It bounds the delay by an I/O unit whose machine does
	// not answer at all (as RFC 8305 does for addresses). An I/O unit that refuses causes no
	// delay.
	headStart = 200 * time.Millisecond
	// answerStart counts from the answer of the machine, which is therefore up; only its
	// process may be missing.
	answerStart = time.Second
	// longestSilence is the time for each answer while a session is opened, or silences times
	// the time that authentication took, if that is longer (as under emulation). The I/O
	// unit's process may hang, or its machine may just have died.
	longestSilence = 2 * time.Second
	silences       = 10
	// mostAttempts is the number of attempts with one I/O unit at a time.
	mostAttempts = 2
)

// Race finds the first I/O unit with which a session can be opened. Several I/O units are
// dialled in parallel. Only one session is opened at a time, because that changes the
// netdevice.
//
// If none of the I/O units answers, each is dialled once more, beside the first attempt: its
// process may have hung for a while, and what it has missed can take until the time-out. The
// pause doubles each time: an I/O unit that is only slow, because many hosts want a session, does
// not lose what it has begun again and again.
//
// Each method returns actions. Tick must be called at the time Wake. When Over reports true,
// the race has ended without a session.
type Race struct {
	actions[RaceAction]
	order   []string
	started int // number of I/O units in order that were dialled
	dialing int
	least   time.Duration // lower bound of all waiting times

	head time.Time // when the next I/O unit is dialled; zero: never

	attempts map[string]int // with each I/O unit: dials, and connections that are kept or used
	repeat   time.Time      // when an I/O unit is dialled once more; zero: never
	pause    time.Duration  // before repeat

	// I/O units that may be restarting are dialled again before the others have failed,
	// because that can take as long as a handshake time-out.
	retry     *Backoff
	away      []string  // such I/O units
	again     time.Time // when to dial them again; zero: never
	redialled []string  // I/O units dialled more than once

	ready   []dialled // I/O units that were dialled, in order; used if opening fails
	opening dialled   // I/O unit with which a session is being opened; unit is None if none is
	patient time.Time // when opening counts as silent
	silent  bool
	overdue bool // silent for so long that it is given up even for another attempt with that unit

	lasting bool // an I/O unit has failed that is not restarting
}

// RaceAction is something for the owner of a Race to do with an I/O unit.
type RaceAction struct {
	Do   RaceVerb
	Unit string
}

// RaceVerb is the kind of a RaceAction.
type RaceVerb int

// The kinds of actions of a race.
const (
	Dial    RaceVerb = iota // connect to an I/O unit and authenticate it
	Open                    // open a session with an I/O unit that was dialled
	Abandon                 // give up opening a session: another one is available
)

type dialled struct {
	unit string
	took time.Duration
}

// NewRace returns a race of I/O units, in order of preference. An I/O unit that is not known
// to be dead has at least the time patience for each of its answers.
func NewRace(order []string, patience time.Duration, retry *Backoff) *Race {
	return &Race{
		order: order, least: patience, retry: retry, opening: dialled{unit: None},
		attempts: make(map[string]int), pause: max(longestSilence, patience),
	}
}

// Start starts the race.
func (r *Race) Start(now time.Time) []RaceAction {
	r.next(now)
	return r.done(now)
}

// Over reports whether all I/O units have failed.
func (r *Race) Over() bool { return r.dialing == 0 && r.opening.unit == None }

// Restarting reports whether all I/O units that have failed may be restarting.
func (r *Race) Restarting() bool { return !r.lasting }

// Wake returns when Tick is due; zero: never.
func (r *Race) Wake() time.Time { return earliest(r.head, r.repeat, r.again, r.patient) }

// earliest returns the first of the times that are not zero, or zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// due reports whether a time has been reached, and then sets it to zero.
func due(t *time.Time, now time.Time) bool {
	if t.IsZero() || now.Before(*t) {
		return false
	}
	*t = time.Time{}
	return true
}

// Tick does what is due by time.
func (r *Race) Tick(now time.Time) []RaceAction {
	if due(&r.head, now) {
		r.next(now)
	}
	if due(&r.again, now) && r.hurried() {
		for _, unit := range r.away {
			r.dial(unit)
		}
		r.redialled = append(r.redialled, r.away...)
		r.away = nil
	}
	if due(&r.patient, now) {
		r.silent = true
		r.next(now)
	}
	if due(&r.repeat, now) && r.hurried() {
		r.overdue = r.silent
		r.dialAgain(now)
	}
	return r.done(now)
}

// Answered is called when the machine of an I/O unit has answered a dial.
func (r *Race) Answered(now time.Time) []RaceAction {
	if r.hurried() {
		r.giveHeadStart(now, answerStart)
	}
	return r.done(now)
}

// Heard is called when the I/O unit with which a session is being opened has answered.
func (r *Race) Heard(now time.Time) []RaceAction {
	r.wait(now)
	return r.done(now)
}

// Dialled is called when an I/O unit is connected and authenticated, which took the given
// time.
func (r *Race) Dialled(now time.Time, unit string, took time.Duration) []RaceAction {
	r.dialing--
	if slices.ContainsFunc(r.ready, func(d dialled) bool { return d.unit == unit }) {
		r.attempts[unit]-- // one of them is enough
	} else {
		r.ready = append(r.ready, dialled{unit, took})
	}
	return r.done(now)
}

// DialFailed is called when a dial has failed. restarts says whether the I/O unit may be
// restarting.
func (r *Race) DialFailed(now time.Time, unit string, restarts bool) []RaceAction {
	r.dialing--
	r.failed(unit, restarts)
	if !slices.Contains(r.redialled, unit) { // otherwise the head start of the others goes on
		r.proceed(now)
	}
	return r.done(now)
}

// OpenFailed is called when opening a session has failed.
func (r *Race) OpenFailed(now time.Time, restarts bool) []RaceAction {
	r.failed(r.opening.unit, restarts)
	r.opening.unit, r.patient = None, time.Time{}
	r.proceed(now)
	return r.done(now)
}

func (r *Race) failed(unit string, restarts bool) {
	r.attempts[unit]--
	if restarts {
		r.away = append(r.away, unit)
	} else {
		r.lasting = true
	}
}

// done ends an event. If no session is being opened, it opens one with the first I/O unit
// that is ready. If the I/O unit of the one that is being opened is silent, it gives that
// one up.
func (r *Race) done(now time.Time) []RaceAction {
	switch {
	case len(r.ready) == 0:
	case r.opening.unit == None:
		r.opening, r.ready = r.ready[0], r.ready[1:]
		r.act(RaceAction{Open, r.opening.unit})
		r.wait(now)
	case r.overdue, r.silent && slices.ContainsFunc(r.ready, func(d dialled) bool { return d.unit != r.opening.unit }):
		r.act(RaceAction{Abandon, r.opening.unit})
	}
	if len(r.away) > 0 && r.again.IsZero() && r.hurried() && !r.Over() {
		r.again = now.Add(r.retry.Restarting())
	}
	return r.actions.done()
}

// next dials the next I/O unit, if there is one, and gives it a head start.
func (r *Race) next(now time.Time) {
	if r.started < len(r.order) {
		r.dial(r.order[r.started])
		r.started++
	}
	r.giveHeadStart(now, headStart)
}

func (r *Race) dial(unit string) {
	r.act(RaceAction{Dial, unit})
	r.dialing++
	r.attempts[unit]++
}

// dialAgain dials the first I/O unit that has not answered once more.
func (r *Race) dialAgain(now time.Time) {
	for _, unit := range r.order {
		if n := r.attempts[unit]; n > 0 && n < mostAttempts {
			r.dial(unit)
			r.redialled = append(r.redialled, unit)
			break
		}
	}
	r.pause *= 2
	r.repeat = now.Add(r.pause)
}

// giveHeadStart sets when the next I/O unit is dialled, or if there is none, one of those that
// were.
func (r *Race) giveHeadStart(now time.Time, start time.Duration) {
	r.head = time.Time{}
	switch {
	case r.started < len(r.order):
		r.head = now.Add(max(start, r.least))
	case r.repeat.IsZero() || r.repeat.After(now):
		r.repeat = now.Add(r.pause)
	}
}

// wait starts the time for the next answer while a session is opened.
func (r *Race) wait(now time.Time) {
	if r.opening.unit != None {
		r.silent, r.overdue, r.head, r.repeat = false, false, time.Time{}, time.Time{}
		r.patient = now.Add(max(longestSilence, r.least, silences*r.opening.took))
	}
}

// hurried reports whether another I/O unit is needed: no session is being opened, or its I/O
// unit is silent.
func (r *Race) hurried() bool { return r.opening.unit == None || r.silent }

// proceed dials the next I/O unit, if one is needed.
func (r *Race) proceed(now time.Time) {
	if r.hurried() && len(r.ready) == 0 {
		r.next(now)
	}
}

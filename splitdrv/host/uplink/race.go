package uplink

import (
	"slices"
	"time"
)

// How long an I/O unit has until another one is tried as well.
const (
	// headStart is from when it is dialled, so that one whose machine is gone, which
	// nobody says, holds up the others no longer than that (as in RFC 8305 for
	// addresses). An I/O unit that refuses, or whose machine does, holds up nobody.
	headStart = 200 * time.Millisecond
	// answerStart is from when its machine has answered: it is there, and only its
	// process may not be.
	answerStart = time.Second
	// longestSilence is for each of its answers when a session is opened, or silences
	// times as long as it took to authenticate if that is more, as under emulation: its
	// process may hang, or its machine have just died. Then the session goes to the
	// next one that can be had.
	longestSilence = 2 * time.Second
	silences       = 10
)

// Race finds the first I/O unit with which a session comes about. One session at a
// time is opened, because it changes the netdevice; the I/O units for it are
// dialled beside each other.
//
// Each call may want something done. Tick is due at Wake; when Over there is nothing
// left to wait for, and no session.
type Race struct {
	actions
	order   []string
	started int // of order
	dialing int
	least   time.Duration // of all times to wait for an I/O unit

	head time.Time // when the next one is dialled as well; zero: not

	// Those that may just be restarting do not wait until nothing comes of the
	// others, which can take as long as a handshake may.
	retry     *Backoff
	away      []string  // such I/O units
	again     time.Time // when to dial them again; zero: nobody waits
	redialled []string  // at least once

	ready   []dialled // wait for the session that is being opened
	opening dialled   // its unit is None if none is
	patient time.Time // when the one that opens has been silent for long
	silent  bool

	lasting bool // one has failed that is not just restarting
}

type dialled struct {
	unit string
	took time.Duration
}

// NewRace tries I/O units in that order. An I/O unit that has not been found dead
// has patience at least for each of its answers.
func NewRace(order []string, patience time.Duration, retry *Backoff) *Race {
	return &Race{order: order, least: patience, retry: retry, opening: dialled{unit: None}}
}

// Start begins it.
func (r *Race) Start(now time.Time) []Action {
	r.next(now)
	return r.done(now)
}

// Over reports whether no session can come about any more.
func (r *Race) Over() bool { return r.dialing == 0 && r.opening.unit == None }

// Restarting reports whether all that have failed may be there again at any moment.
func (r *Race) Restarting() bool { return !r.lasting }

// Wake is when Tick is due; zero: never.
func (r *Race) Wake() time.Time { return earliest(r.head, r.again, r.patient) }

// earliest is the first of some times that are not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// due reports whether a time has come, and then forgets it.
func due(t *time.Time, now time.Time) bool {
	if t.IsZero() || now.Before(*t) {
		return false
	}
	*t = time.Time{}
	return true
}

// Tick does what is due by time.
func (r *Race) Tick(now time.Time) []Action {
	if due(&r.head, now) {
		r.next(now)
	}
	if due(&r.again, now) && r.hurried() {
		for _, unit := range r.away {
			r.act(Dial, unit)
			r.dialing++
		}
		r.redialled = append(r.redialled, r.away...)
		r.away = nil
	}
	if due(&r.patient, now) {
		r.silent = true
		r.next(now)
	}
	return r.done(now)
}

// Answered is told that the machine of an I/O unit has answered a dial.
func (r *Race) Answered(now time.Time) []Action {
	if r.hurried() {
		r.giveHeadStart(now, answerStart)
	}
	return r.done(now)
}

// Heard is told that the I/O unit with which a session is being opened has answered.
func (r *Race) Heard(now time.Time) []Action {
	r.wait(now)
	return r.done(now)
}

// Dialled is told that an I/O unit has been connected to, and how long that took.
func (r *Race) Dialled(now time.Time, unit string, took time.Duration) []Action {
	r.dialing--
	r.ready = append(r.ready, dialled{unit, took})
	return r.done(now)
}

// DialFailed is told that an I/O unit cannot be had, and whether it may just be
// restarting.
func (r *Race) DialFailed(now time.Time, unit string, restarts bool) []Action {
	r.dialing--
	r.failed(unit, restarts)
	if !slices.Contains(r.redialled, unit) { // else the others have their head start
		r.proceed(now)
	}
	return r.done(now)
}

// OpenFailed is told that the session that was opened has not come about.
func (r *Race) OpenFailed(now time.Time, restarts bool) []Action {
	r.failed(r.opening.unit, restarts)
	r.opening.unit, r.patient = None, time.Time{}
	r.proceed(now)
	return r.done(now)
}

func (r *Race) failed(unit string, restarts bool) {
	if restarts {
		r.away = append(r.away, unit)
	} else {
		r.lasting = true
	}
}

// done ends an event: it opens a session with the first I/O unit that is ready,
// when none is being opened, or gives up the one that is, when nothing is heard.
func (r *Race) done(now time.Time) []Action {
	switch {
	case len(r.ready) == 0:
	case r.opening.unit == None:
		r.opening, r.ready = r.ready[0], r.ready[1:]
		r.act(Open, r.opening.unit)
		r.wait(now)
	case r.silent:
		r.act(Abandon, r.opening.unit)
	}
	if len(r.away) > 0 && r.again.IsZero() && r.hurried() && !r.Over() {
		r.again = now.Add(r.retry.Restarting())
	}
	return r.actions.done()
}

// next dials the next I/O unit, if there is one, with a head start.
func (r *Race) next(now time.Time) {
	if r.started < len(r.order) {
		r.act(Dial, r.order[r.started])
		r.dialing++
		r.started++
	}
	r.giveHeadStart(now, headStart)
}

// giveHeadStart says when the next I/O unit is dialled, if there is one.
func (r *Race) giveHeadStart(now time.Time, start time.Duration) {
	r.head = time.Time{}
	if r.started < len(r.order) {
		r.head = now.Add(max(start, r.least))
	}
}

// wait is patient, again, with the session that is being opened.
func (r *Race) wait(now time.Time) {
	if r.opening.unit != None {
		r.silent, r.head = false, time.Time{}
		r.patient = now.Add(max(longestSilence, r.least, silences*r.opening.took))
	}
}

// hurried reports whether another I/O unit is wanted: none has a session being
// opened, or it has been silent for long.
func (r *Race) hurried() bool { return r.opening.unit == None || r.silent }

// proceed goes on to the next I/O unit, if one is wanted.
func (r *Race) proceed(now time.Time) {
	if r.hurried() && len(r.ready) == 0 {
		r.next(now)
	}
}

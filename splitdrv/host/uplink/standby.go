package uplink

import (
	"errors"
	"slices"
	"time"
)

// ErrNoStandby is wrapped by the error of an I/O unit that does not support sessions on
// standby. It is not tried again while the session in use lasts.
var ErrNoStandby = errors.New("the I/O unit has no standby sessions")

// Session is a session that Standby keeps. Its zero value means none.
type Session interface {
	comparable
	Unit() string // the I/O unit
}

// Standby keeps a session on standby while another one is in use, with the first available
// I/O unit of a list. When a session on standby with a preferred I/O unit has lasted for a
// while, it switches to that one; in the meantime it looks for one that is preferred even to
// that. While the I/O unit in use is being left (drained), it switches to any other one
// immediately.
//
// A session is in it from Prepared until End, Switch or Take.
//
// Most methods return actions. Tick must be called at the time Wake.
type Standby[S Session] struct {
	actions[StandbyAction[S]]
	able      []string // I/O units for a session on standby, in order
	preferred []string // I/O units to fail back to
	failBack  time.Duration
	retry     *Backoff
	patience  time.Duration // time after which another I/O unit is tried in parallel
	leaving   bool          // the I/O unit in use is being left

	trial  trial[S]
	held   S // the session on standby, or none
	since  time.Time
	back   time.Time // when to switch to held
	better time.Time // when to look for a more preferred I/O unit
	pause  time.Time // when to try again
}

// trial is the attempt to open a session with the first available I/O unit of a list.
type trial[S Session] struct {
	list    []string
	started int // number of I/O units in list that were tried
	pending int
	next    time.Time // when the next one is tried in parallel
	found   S
	ended   bool // no more I/O units are tried
	lost    bool // there is no session on standby any more, since the trial began
	errs    []error
}

// StandbyAction is something for the owner of a Standby to do.
type StandbyAction[S Session] struct {
	Do      StandbyVerb
	Unit    string // of Prepare
	Session S      // of End and Switch
}

// StandbyVerb is the kind of a StandbyAction.
type StandbyVerb int

// The kinds of actions of a Standby.
const (
	Prepare    StandbyVerb = iota // open a session for standby
	AbandonAll                    // give up opening sessions for standby
	End                           // end a session that is not needed, or has ended
	Switch                        // switch to the session that was on standby
	Report                        // report why there is no session on standby
)

// NewStandby keeps a session on standby with one of the I/O units w. failBack, if not 0, is
// for how long a session with a preferred I/O unit must last before it is used. An I/O unit
// has at least the time patience to answer.
func NewStandby[S Session](w Wanted, failBack, patience time.Duration, retry *Backoff) *Standby[S] {
	s := &Standby[S]{failBack: failBack, retry: retry, patience: max(longestSilence, patience)}
	s.want(w)
	return s
}

func (s *Standby[S]) want(w Wanted) {
	s.able, s.preferred = slices.Concat(w.Preferred, w.Others), w.Preferred
}

// Start begins to keep a session on standby.
func (s *Standby[S]) Start(now time.Time) []StandbyAction[S] {
	s.try(now, s.able)
	return s.done()
}

// Leave is called when the I/O unit in use is to be left: for the I/O unit of the session on
// standby, or for the first available one of list.
func (s *Standby[S]) Leave(now time.Time, list []string) []StandbyAction[S] {
	s.leaving, s.able = true, list
	s.pause, s.back, s.better = time.Time{}, time.Time{}, time.Time{}
	switch {
	case s.trial.pending > 0: // its result is used
	case is(s.held):
		s.switchOver()
	case len(list) == 0:
		s.trial = trial[S]{}
		s.act(StandbyAction[S]{Do: Report})
	default:
		s.try(now, list)
	}
	return s.done()
}

// Stay is called when the I/O unit in use is not to be left any more, or when the I/O units
// for a session on standby have changed. A session is kept on standby with one of w.
func (s *Standby[S]) Stay(now time.Time, w Wanted) []StandbyAction[S] {
	s.want(w)
	s.leaving, s.pause = false, time.Time{}
	switch {
	case s.trial.pending > 0:
	case !is(s.held):
		s.try(now, s.able)
	case slices.Contains(s.able, s.held.Unit()):
		s.watch(now)
	default:
		s.drop()
		s.try(now, s.able)
	}
	return s.done()
}

// Leaving reports whether the I/O unit in use is being left.
func (s *Standby[S]) Leaving() bool { return s.leaving }

// Held returns the session on standby, or none.
func (s *Standby[S]) Held() S { return s.held }

// Wake returns when Tick is due; zero: never.
func (s *Standby[S]) Wake() time.Time {
	if s.trial.pending > 0 {
		return s.trial.next
	}
	return earliest(s.back, s.better, s.pause)
}

// Tick does what is due by time.
func (s *Standby[S]) Tick(now time.Time) []StandbyAction[S] {
	switch {
	case s.trial.pending > 0:
		if due(&s.trial.next, now) {
			s.launch(now)
		}
	case due(&s.pause, now):
		s.try(now, s.able)
	case due(&s.back, now):
		s.switchOver()
	case due(&s.better, now):
		s.try(now, s.able[:slices.Index(s.able, s.held.Unit())])
	}
	return s.done()
}

// Prepared is called when a session with an I/O unit was opened, or that has failed with err.
func (s *Standby[S]) Prepared(now time.Time, unit string, session S, err error) []StandbyAction[S] {
	t := &s.trial
	t.pending--
	switch {
	case err != nil:
		t.errs[slices.Index(t.list, unit)] = err
		s.launch(now)
	case is(t.found):
		s.pass(End, session)
	default:
		t.found, t.ended = session, true
		s.act(StandbyAction[S]{Do: AbandonAll})
	}
	s.conclude(now)
	return s.done()
}

// Ended is called when the session on standby has ended.
func (s *Standby[S]) Ended(now time.Time) []StandbyAction[S] {
	s.drop()
	if s.trial.pending > 0 { // a preferred one may still come
		s.trial.ended = true
		s.act(StandbyAction[S]{Do: AbandonAll})
	}
	s.gone(now)
	return s.done()
}

// Take returns the session on standby, or none, and leaves it to the caller.
func (s *Standby[S]) Take() S { return s.release() }

// Resume is called after Take, and after a switch that has failed: another session is kept on
// standby.
func (s *Standby[S]) Resume(now time.Time) []StandbyAction[S] {
	if !is(s.held) {
		s.gone(now)
	}
	return s.done()
}

// Why returns why there is no session on standby: the first I/O unit that has failed, with
// its error.
func (s *Standby[S]) Why() (unit string, err error) {
	for i, err := range s.trial.errs {
		if err != nil {
			return s.trial.list[i], err
		}
	}
	return None, nil
}

func (s *Standby[S]) try(now time.Time, list []string) {
	s.trial = trial[S]{list: list, errs: make([]error, len(list))}
	s.launch(now)
}

// launch tries the next I/O unit of the trial, if there is one.
func (s *Standby[S]) launch(now time.Time) {
	t := &s.trial
	if t.ended || t.started == len(t.list) {
		return
	}
	s.act(StandbyAction[S]{Do: Prepare, Unit: t.list[t.started]})
	t.started++
	t.pending++
	t.next = now.Add(s.patience)
}

// conclude ends a trial that has nothing pending.
func (s *Standby[S]) conclude(now time.Time) {
	t := &s.trial
	if t.pending > 0 {
		return
	}
	var never []string
	for i, err := range t.errs {
		if errors.Is(err, ErrNoStandby) {
			never = append(never, t.list[i])
		}
	}
	s.able = without(s.able, never...)
	unwanted := func(session S) bool { return is(session) && !slices.Contains(s.able, session.Unit()) }
	if unwanted(s.held) {
		s.drop()
	}
	if unwanted(t.found) {
		s.pass(End, t.found)
		t.found = none[S]()
		if !is(s.held) && !t.lost {
			s.try(now, s.able)
			return
		}
	}
	switch {
	case is(t.found):
		s.hold(now)
	case is(s.held):
		s.watch(now)
	case t.lost:
		s.gone(now)
	default:
		s.act(StandbyAction[S]{Do: Report})
		s.rest(now, s.retry.Failed())
	}
}

// hold makes the session that was found the one on standby.
func (s *Standby[S]) hold(now time.Time) {
	if !is(s.held) {
		s.since = now
	}
	s.drop()
	s.held, s.trial.found = s.trial.found, none[S]()
	s.watch(now)
}

// watch sets when the session on standby is used, and when a more preferred I/O unit is
// looked for.
func (s *Standby[S]) watch(now time.Time) {
	s.better = time.Time{}
	switch {
	case s.leaving:
		s.switchOver()
		return
	case !slices.Contains(s.preferred, s.held.Unit()):
		s.back = time.Time{}
	case s.back.IsZero():
		s.back = now.Add(s.failBack)
	}
	if first := s.able[0]; first != s.held.Unit() && slices.Contains(s.preferred, first) {
		s.better = now.Add(s.retry.Max)
	}
}

// drop ends the session on standby, if there is one.
func (s *Standby[S]) drop() { s.pass(End, s.release()) }

// switchOver passes the session on standby on, to be used.
func (s *Standby[S]) switchOver() { s.pass(Switch, s.release()) }

// release returns the session on standby, which it is no longer.
func (s *Standby[S]) release() (session S) {
	session, s.held = s.held, session
	s.back, s.better = time.Time{}, time.Time{}
	return session
}

// gone begins again when the session on standby is not there any more, after a pause unless the
// session has lasted.
func (s *Standby[S]) gone(now time.Time) {
	if s.trial.pending > 0 {
		s.trial.lost = true
		return
	}
	s.rest(now, s.retry.Ended(now.Sub(s.since)))
}

// rest sets when to try again, if there are I/O units to try.
func (s *Standby[S]) rest(now time.Time, pause time.Duration) {
	if len(s.able) > 0 {
		s.pause = now.Add(pause)
	}
}

// pass passes a session on, unless it is none.
func (s *Standby[S]) pass(do StandbyVerb, session S) {
	if is(session) {
		s.act(StandbyAction[S]{Do: do, Session: session})
	}
}

func none[S Session]() (none S) { return none }

func is[S Session](session S) bool { return session != none[S]() }

package uplink

import (
	"errors"
	"slices"
	"time"
)

// ErrNoStandby is wrapped by the error about an I/O unit with which no session can
// wait for its turn. It is not asked again while another one is in use.
var ErrNoStandby = errors.New("the I/O unit has no standby sessions")

// Standby keeps a session on standby while one is in use: with the first I/O unit of
// a list that can be had. It goes back to one that is preferred to the one in use
// when a session with it has lasted, and has looked meanwhile for one that is
// preferred even to that. While the one in use is to be left, it goes to any other at
// once.
//
// Each call may want something done. Tick is due at Wake.
type Standby struct {
	actions
	able      []string // to have one, in order
	preferred []string // those to go back to
	failBack  time.Duration
	retry     *Backoff
	patience  time.Duration // until another one is tried as well
	leaving   bool          // the one in use

	trial  trial
	held   string // with which there is one; None
	since  time.Time
	back   time.Time // when to go back to it
	better time.Time // when to look for a preferred one
	pause  time.Time // when to try again
}

// trial is to prepare a session with the first of some I/O units that can be had.
type trial struct {
	list    []string
	started int // of list
	pending int
	next    time.Time // when the next one is tried as well
	found   string
	ended   bool // nothing more is started
	errs    []error
}

// NewStandby keeps a session with one of the I/O units that are wanted. failBack, if it
// is not 0, is how long a session with a preferred one lasts until it is put to use. An
// I/O unit has patience at least to answer.
func NewStandby(w Wanted, failBack, patience time.Duration, retry *Backoff) *Standby {
	s := &Standby{failBack: failBack, retry: retry, patience: max(longestSilence, patience), held: None}
	s.want(w)
	return s
}

func (s *Standby) want(w Wanted) {
	s.able, s.preferred = slices.Concat(w.Preferred, w.Others), w.Preferred
}

// Start begins it.
func (s *Standby) Start(now time.Time) []Action {
	s.try(now, s.able)
	return s.done()
}

// Leave is told that the I/O unit in use is to be left, for the first of a list that can
// be had, or for the one with which there is a session already.
func (s *Standby) Leave(now time.Time, list []string) []Action {
	s.leaving, s.able = true, list
	s.pause, s.back, s.better = time.Time{}, time.Time{}, time.Time{}
	switch {
	case s.trial.pending > 0: // what comes of it is put to use
	case s.held != None:
		s.act(Switch, s.held)
	case len(list) == 0:
		s.trial = trial{found: None}
		s.act(Report, None)
	default:
		s.try(now, list)
	}
	return s.done()
}

// Stay is told that the I/O unit in use is not to be left, or not any more, and which
// ones are wanted now: a session is kept on standby with one of them, as from the start.
func (s *Standby) Stay(now time.Time, w Wanted) []Action {
	s.want(w)
	s.leaving, s.pause = false, time.Time{}
	switch {
	case s.trial.pending > 0:
	case s.held == None:
		s.try(now, s.able)
	case slices.Contains(s.able, s.held):
		s.watch(now)
	default:
		s.act(Drop, s.held)
		s.held = None
		s.try(now, s.able)
	}
	return s.done()
}

// Leaving reports whether the I/O unit in use is to be left.
func (s *Standby) Leaving() bool { return s.leaving }

// Wake is when Tick is due; zero: never.
func (s *Standby) Wake() time.Time {
	if s.trial.pending > 0 {
		return s.trial.next
	}
	return earliest(s.back, s.better, s.pause)
}

// Tick does what is due by time.
func (s *Standby) Tick(now time.Time) []Action {
	switch {
	case s.trial.pending > 0:
		if due(&s.trial.next, now) {
			s.launch(now)
		}
	case due(&s.pause, now):
		s.try(now, s.able)
	case due(&s.back, now):
		s.better = time.Time{}
		s.act(Switch, s.held)
	case due(&s.better, now):
		s.try(now, s.able[:slices.Index(s.able, s.held)])
	}
	return s.done()
}

// Prepared is told that a session is ready.
func (s *Standby) Prepared(now time.Time, unit string) []Action {
	t := &s.trial
	t.pending--
	if t.found == None {
		t.found, t.ended = unit, true
		s.act(AbandonAll, None)
	} else {
		s.act(Retire, unit)
	}
	s.conclude(now)
	return s.done()
}

// PrepareFailed is told why none is.
func (s *Standby) PrepareFailed(now time.Time, unit string, err error) []Action {
	t := &s.trial
	t.pending--
	t.errs[slices.Index(t.list, unit)] = err
	s.launch(now)
	s.conclude(now)
	return s.done()
}

// Ended is told that the session on standby has ended, or has been gone over to in vain.
func (s *Standby) Ended(now time.Time) []Action {
	if s.trial.pending > 0 { // a preferred one may still come
		s.trial.ended = true
		s.act(AbandonAll, None)
		return s.done()
	}
	s.drop(now)
	return s.done()
}

// Why is why there is no session on standby, as far as it is known.
func (s *Standby) Why() (unit string, err error) {
	for i, err := range s.trial.errs {
		if err != nil {
			return s.trial.list[i], err
		}
	}
	return None, nil
}

func (s *Standby) try(now time.Time, list []string) {
	s.trial = trial{list: list, found: None, errs: make([]error, len(list))}
	s.launch(now)
}

// launch tries the next I/O unit, if there is one.
func (s *Standby) launch(now time.Time) {
	t := &s.trial
	if t.ended || t.started == len(t.list) {
		return
	}
	s.act(Prepare, t.list[t.started])
	t.started++
	t.pending++
	t.next = now.Add(s.patience)
}

// conclude ends a trial of which nothing is pending.
func (s *Standby) conclude(now time.Time) {
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
	if s.held != None && !slices.Contains(s.able, s.held) { // meanwhile it is not wanted
		s.act(Drop, s.held)
		s.held = None
	}
	switch {
	case t.found != None && !slices.Contains(s.able, t.found):
		s.act(Retire, t.found)
	case t.found != None:
		s.hold(now, t.found)
	case s.held == None:
		s.act(Report, None)
		s.rest(now, s.retry.Failed())
	case t.ended:
		s.drop(now)
	default:
		s.watch(now)
	}
}

// hold makes a session the one on standby.
func (s *Standby) hold(now time.Time, unit string) {
	if s.held == None {
		s.since = now
	} else {
		s.act(Drop, s.held)
	}
	s.held, s.back = unit, time.Time{}
	s.act(Hold, unit)
	s.watch(now)
}

// watch says what becomes of the session on standby: when it is put to use, and when one
// that is preferred to it is looked for.
func (s *Standby) watch(now time.Time) {
	s.better = time.Time{}
	switch {
	case s.leaving:
		s.act(Switch, s.held)
		return
	case !slices.Contains(s.preferred, s.held):
		s.back = time.Time{}
	case s.back.IsZero():
		s.back = now.Add(s.failBack)
	}
	if first := s.able[0]; first != s.held && slices.Contains(s.preferred, first) {
		s.better = now.Add(s.retry.Max)
	}
}

// drop begins anew, after a pause unless the session has lasted.
func (s *Standby) drop(now time.Time) {
	s.act(Drop, s.held)
	s.held, s.back, s.better = None, time.Time{}, time.Time{}
	s.rest(now, s.retry.Ended(now.Sub(s.since)))
}

// rest waits, if there is anybody left to try.
func (s *Standby) rest(now time.Time, pause time.Duration) {
	if len(s.able) > 0 {
		s.pause = now.Add(pause)
	}
}

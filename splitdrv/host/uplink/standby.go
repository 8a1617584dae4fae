package uplink

import (
	"errors"
	"slices"
	"time"
)

// ErrNoStandby is wrapped by the error of an I/O unit that does not support sessions on
// standby. It is not tried again while the session in use lasts.
var ErrNoStandby = errors.New("the I/O unit has no standby sessions")

// Standby keeps a session on standby while another one is in use, with the first available
// I/O unit of a list. When a session on standby with a preferred I/O unit has lasted for a
// while, it switches to that one; in the meantime it looks for one that is preferred even to
// that. While the I/O unit in use is being left (drained), it switches to any other one
// immediately.
//
// Each method returns actions. Tick must be called at the time Wake.
type Standby struct {
	actions
	able      []string // I/O units for a session on standby, in order
	preferred []string // I/O units to fail back to
	failBack  time.Duration
	retry     *Backoff
	patience  time.Duration // time after which another I/O unit is tried in parallel
	leaving   bool          // the I/O unit in use is being left

	trial  trial
	held   string // I/O unit of the session on standby; None
	since  time.Time
	back   time.Time // when to switch to held
	better time.Time // when to look for a more preferred I/O unit
	pause  time.Time // when to try again
}

// trial is the attempt to open a session with the first available I/O unit of a list.
type trial struct {
	list    []string
	started int // number of I/O units in list that were tried
	pending int
	next    time.Time // when the next one is tried in parallel
	found   string
	ended   bool // no more I/O units are tried
	lost    bool // the session on standby has ended meanwhile
	errs    []error
}

// NewStandby keeps a session on standby with one of the I/O units w. failBack, if not 0, is
// for how long a session with a preferred I/O unit must last before it is used. An I/O unit
// has at least the time patience to answer.
func NewStandby(w Wanted, failBack, patience time.Duration, retry *Backoff) *Standby {
	s := &Standby{failBack: failBack, retry: retry, patience: max(longestSilence, patience), held: None}
	s.want(w)
	return s
}

func (s *Standby) want(w Wanted) {
	s.able, s.preferred = slices.Concat(w.Preferred, w.Others), w.Preferred
}

// Start begins to keep a session on standby.
func (s *Standby) Start(now time.Time) []Action {
	s.try(now, s.able)
	return s.done()
}

// Leave is called when the I/O unit in use is to be left: for the I/O unit of the session on
// standby, or for the first available one of list.
func (s *Standby) Leave(now time.Time, list []string) []Action {
	s.leaving, s.able = true, list
	s.pause, s.back, s.better = time.Time{}, time.Time{}, time.Time{}
	switch {
	case s.trial.pending > 0: // its result is used
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

// Stay is called when the I/O unit in use is not to be left any more, or when the I/O units
// for a session on standby have changed. A session is kept on standby with one of w.
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
		s.release()
		s.try(now, s.able)
	}
	return s.done()
}

// Leaving reports whether the I/O unit in use is being left.
func (s *Standby) Leaving() bool { return s.leaving }

// Wake returns when Tick is due; zero: never.
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

// Prepared is called when a session was opened.
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

// PrepareFailed is called when opening a session has failed.
func (s *Standby) PrepareFailed(now time.Time, unit string, err error) []Action {
	t := &s.trial
	t.pending--
	t.errs[slices.Index(t.list, unit)] = err
	s.launch(now)
	s.conclude(now)
	return s.done()
}

// Ended is called when the session on standby has ended, or a switch to it has failed.
func (s *Standby) Ended(now time.Time) []Action {
	if s.trial.pending > 0 { // a preferred one may still come
		s.trial.ended, s.trial.lost = true, true
		s.act(AbandonAll, None)
		return s.done()
	}
	s.drop(now)
	return s.done()
}

// Why returns why there is no session on standby: the first I/O unit that has failed, with
// its error.
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

// launch tries the next I/O unit of the trial, if there is one.
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

// conclude ends a trial that has nothing pending.
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
	if s.held != None && !slices.Contains(s.able, s.held) { // it is no longer wanted
		s.release()
	}
	if t.found != None && !slices.Contains(s.able, t.found) {
		s.act(Retire, t.found)
		if s.held == None {
			s.try(now, s.able)
			return
		}
		t.found = None
	}
	switch {
	case t.found != None:
		s.hold(now, t.found)
	case s.held == None:
		s.act(Report, None)
		s.rest(now, s.retry.Failed())
	case t.lost:
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

// watch sets when the session on standby is used, and when a more preferred I/O unit is
// looked for.
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

// drop drops the session on standby and begins again, after a pause unless the session has
// lasted.
func (s *Standby) drop(now time.Time) {
	s.release()
	s.rest(now, s.retry.Ended(now.Sub(s.since)))
}

// release ends the session on standby.
func (s *Standby) release() {
	s.act(Drop, s.held)
	s.held, s.back, s.better = None, time.Time{}, time.Time{}
}

// rest sets when to try again, if there are I/O units to try.
func (s *Standby) rest(now time.Time, pause time.Duration) {
	if len(s.able) > 0 {
		s.pause = now.Add(pause)
	}
}

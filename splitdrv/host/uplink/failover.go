package uplink

import (
	"maps"
	"time"
)

// Reason says why a session ended and another took its place.
type Reason string

// The reasons.
const (
	ReasonDied     Reason = "died"      // the I/O unit's process, or the network between
	ReasonSilent   Reason = "silent"    // the I/O unit's machine, or the link
	ReasonGoodbye  Reason = "goodbye"   // the I/O unit was told to end
	ReasonEnded    Reason = "ended"     // the I/O unit ended the session for another reason
	ReasonFabric   Reason = "fabric"    // a queue pair failed
	ReasonProtocol Reason = "protocol"  // the I/O unit broke the protocol
	ReasonTrust    Reason = "trust"     // the I/O unit's key is trusted no longer here
	ReasonStart    Reason = "start"     // it could not be put to use
	ReasonCommand  Reason = "command"   // somebody wanted it
	ReasonFailBack Reason = "fail-back" // a preferred I/O unit can be reached again
	ReasonDrain    Reason = "drain"     // the I/O unit has asked for it, so that it can be maintained
)

// Reasons are all of them.
func Reasons() []Reason {
	return []Reason{
		ReasonDied, ReasonSilent, ReasonGoodbye, ReasonEnded, ReasonFabric, ReasonProtocol, ReasonTrust,
		ReasonStart, ReasonCommand, ReasonFailBack, ReasonDrain,
	}
}

// Stage is how long one part of making a session took.
type Stage struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
}

// Failover is one change from a session to the next.
type Failover struct {
	From   string    `json:"from"` // address of the I/O unit
	To     string    `json:"to"`   // may be the same
	Reason Reason    `json:"reason"`
	At     time.Time `json:"at"` // when the end was detected, or it was begun
	// Took is from At to the moment when frames could move again. Gap is that
	// part of it in which none could: less if the second session was made first.
	Took time.Duration `json:"took_ns"`
	Gap  time.Duration `json:"gap_ns"`
	// Stages are what making the second session took.
	Stages []Stage `json:"stages"`
	// Frames of the host's: see messaging.Unsent. Those that it had and did not
	// deliver (Unrevoked) are among the lost ones.
	Carried   uint64 `json:"frames_carried"`
	Uncertain uint64 `json:"frames_uncertain"`
	Lost      uint64 `json:"frames_lost"`
}

// FailoverStatus counts fail-overs since the start.
type FailoverStatus struct {
	// Count is of those to another I/O unit, by reason, and Reconnects of those to
	// the same one.
	Count      map[Reason]uint64 `json:"count"`
	Reconnects uint64            `json:"reconnects"`
	Carried    uint64            `json:"frames_carried"`   // sent by the next session
	Uncertain  uint64            `json:"frames_uncertain"` // sent, and not known to have arrived; a bound
	Lost       uint64            `json:"frames_lost"`
	Last       *Failover         `json:"last,omitempty"`
	Standby    string            `json:"standby,omitempty"`    // address of the I/O unit that a session is ready with
	NoStandby  string            `json:"no_standby,omitempty"` // why there is none, while it is wanted
}

// Failovers are the books about fail-overs.
type Failovers struct {
	sum  FailoverStatus
	open *Failover // frames do not move yet
	gap  time.Time // when they stopped
}

// Begin enters that frames stopped, after the end of a session or for its
// replacement by another one, which began at a time of its own.
func (f *Failovers) Begin(from string, why Reason, began, stopped time.Time) {
	if f.gap = stopped; f.open == nil {
		f.open = &Failover{From: from, Reason: why, At: began}
	}
}

// Frames enters what has become of frames, if a fail-over has begun.
func (f *Failovers) Frames(carried, uncertain, lost uint64) {
	if o := f.open; o != nil {
		o.Carried += carried
		o.Uncertain += uncertain
		o.Lost += lost
	}
}

// End enters that frames move again. It returns the fail-over, nil if none had begun.
func (f *Failovers) End(to string, stages []Stage, now time.Time) *Failover {
	done, s := f.open, &f.sum
	if done == nil {
		return nil
	}
	done.To, done.Stages, done.Took, done.Gap = to, stages, now.Sub(done.At), now.Sub(f.gap)
	if s.Count == nil {
		s.Count = make(map[Reason]uint64)
	}
	if done.To == done.From {
		s.Reconnects++
	} else {
		s.Count[done.Reason]++
	}
	s.Carried += done.Carried
	s.Uncertain += done.Uncertain
	s.Lost += done.Lost
	f.open, s.Last = nil, done
	return done
}

// Status is a copy of the books.
func (f *Failovers) Status() FailoverStatus {
	s := f.sum
	s.Count = maps.Clone(s.Count)
	if s.Last != nil {
		last := *s.Last
		s.Last = &last
	}
	return s
}

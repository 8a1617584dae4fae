package uplink

import (
	"maps"
	"time"
)

// Reason is the reason for a change from one session to the next.
type Reason string

// The reasons.
const (
	ReasonDied     Reason = "died"      // the I/O unit's process, or the network between
	ReasonSilent   Reason = "silent"    // the I/O unit's machine, or the link
	ReasonGoodbye  Reason = "goodbye"   // the I/O unit was stopped in good order
	ReasonEnded    Reason = "ended"     // the I/O unit ended the session for another reason
	ReasonFabric   Reason = "fabric"    // a queue pair failed
	ReasonProtocol Reason = "protocol"  // the I/O unit broke the protocol
	ReasonTrust    Reason = "trust"     // this host no longer trusts the I/O unit's key
	ReasonStart    Reason = "start"     // the session could not be activated
	ReasonCommand  Reason = "command"   // an administrator's command
	ReasonFailBack Reason = "fail-back" // a preferred I/O unit is reachable again
	ReasonDrain    Reason = "drain"     // the I/O unit is being drained
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonDied, ReasonSilent, ReasonGoodbye, ReasonEnded, ReasonFabric, ReasonProtocol, ReasonTrust,
		ReasonStart, ReasonCommand, ReasonFailBack, ReasonDrain,
	}
}

// Stage is the duration of one stage of opening a session.
type Stage struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
}

// Failover is one change from a session to the next.
type Failover struct {
	From   string    `json:"from"` // address of the I/O unit
	To     string    `json:"to"`   // may be the same
	Reason Reason    `json:"reason"`
	At     time.Time `json:"at"` // when the end was detected, or the switch was requested
	// Took is the time from At until frames could move again. Gap is the part of it in which
	// none could move; it is shorter if the second session was opened before.
	Took time.Duration `json:"took_ns"`
	Gap  time.Duration `json:"gap_ns"`
	// Stages are the stages of opening the second session.
	Stages []Stage `json:"stages"`
	// Frames of the host: see messaging.Unsent. Lost includes Unrevoked.
	Carried   uint64 `json:"frames_carried"`
	Uncertain uint64 `json:"frames_uncertain"`
	Lost      uint64 `json:"frames_lost"`
}

// FailoverStatus counts fail-overs since the start.
type FailoverStatus struct {
	// Count counts fail-overs to another I/O unit, by reason, and Reconnects those to the same
	// one.
	Count      map[Reason]uint64 `json:"count"`
	Reconnects uint64            `json:"reconnects"`
	Carried    uint64            `json:"frames_carried"`   // sent by the next session
	Uncertain  uint64            `json:"frames_uncertain"` // sent, and not known to have arrived; an upper bound of losses
	Lost       uint64            `json:"frames_lost"`
	Last       *Failover         `json:"last,omitempty"`
	Standby    string            `json:"standby,omitempty"`    // address of the I/O unit of the session on standby
	NoStandby  string            `json:"no_standby,omitempty"` // why there is none although it is wanted
}

// Failovers counts fail-overs.
type Failovers struct {
	sum  FailoverStatus
	open *Failover // current fail-over; nil while frames move
	gap  time.Time // when frames stopped
}

// Begin records that frames stopped: at the end of a session, or for a switch. began is when
// the end was detected or the switch was requested.
func (f *Failovers) Begin(from string, why Reason, began, stopped time.Time) {
	if f.gap = stopped; f.open == nil {
		f.open = &Failover{From: from, Reason: why, At: began}
	}
}

// Frames adds to the counts of the current fail-over, if there is one.
func (f *Failovers) Frames(carried, uncertain, lost uint64) {
	if o := f.open; o != nil {
		o.Carried += carried
		o.Uncertain += uncertain
		o.Lost += lost
	}
}

// End records that frames move again. It returns the fail-over, or nil if there was none.
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

// Status returns a copy of the counts, in which Count is never nil.
func (f *Failovers) Status() FailoverStatus {
	s := f.sum
	s.Count = make(map[Reason]uint64, len(f.sum.Count))
	maps.Copy(s.Count, f.sum.Count)
	if s.Last != nil {
		last := *s.Last
		s.Last = &last
	}
	return s
}

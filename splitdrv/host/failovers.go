package host

import (
	"maps"
	"time"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
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
)

// Reasons are all of them.
func Reasons() []Reason {
	return []Reason{ReasonDied, ReasonSilent, ReasonGoodbye, ReasonEnded, ReasonFabric, ReasonProtocol, ReasonTrust, ReasonStart, ReasonCommand, ReasonFailBack}
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
	// Frames of the host's: see messaging.Remains. Those that it had and did not
	// deliver (Unsealed) are among the lost ones.
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
	NoStandby  string            `json:"no_standby,omitempty"` // why there is none, while Config.Standby wants one
}

// failovers are the books about that. They are guarded by Host.mu.
type failovers struct {
	status  FailoverStatus
	last    *Failover
	open    *Failover // the end of which is not there yet
	gap     time.Time // when frames stopped
	order   *order    // that it is by
	remains *messaging.Remains
	// offloads are those of the session whose remains they are.
	offloads vnet.Offloads
}

// takeRemains returns what the last session has left, once.
func (f *failovers) takeRemains() *messaging.Remains {
	r := f.remains
	f.remains = nil
	return r
}

// lost begins a fail-over whose end is not known.
func (h *Host) lost(a *attachment, e *ending, detected time.Time, r *messaging.Remains) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &h.failovers
	if f.remains != nil { // of a session that was never put to use
		r.Frames = append(r.Frames, f.remains.Frames...)
	}
	f.remains, f.gap = r, detected
	if f.open == nil {
		f.open = &Failover{From: a.addr, Reason: e.reason, At: detected}
	}
	if e.order != nil {
		f.open.At, f.order = e.order.started, e.order
	}
	f.open.Uncertain += r.Uncertain
	f.open.Lost += r.Lost + r.Unsealed
}

// switched begins a fail-over to a session that is ready.
func (h *Host) switched(a *attachment, o *order) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &h.failovers
	f.gap, f.order = o.paused, o
	f.open = &Failover{From: a.addr, Reason: o.reason, At: o.started, Lost: o.remains.Lost + o.remains.Unsealed}
}

// inherit returns what of the last session's frames the one that the netdevice has
// been configured for can send: those that were read when the operating system
// left more to the I/O unit are lost. The caller holds dev.mu.
func (h *Host) inherit(r *messaging.Remains) *messaging.Remains {
	if r == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.failovers.open
	if before := h.failovers.offloads; f != nil && h.dev.is.offloads.Intersect(before) != before {
		f.Lost += r.Count()
		return nil
	}
	if f != nil {
		f.Carried += r.Count()
	}
	return r
}

// settled ends the fail-over that is open, if one is, and tells who wanted it.
func (h *Host) settled(a *attachment) {
	offloads := h.dev.shown.Load().offloads
	h.mu.Lock()
	f := &h.failovers
	done, o := f.open, f.order
	f.open, f.order, f.offloads, h.present = nil, nil, offloads, a.unit
	if done != nil {
		now := time.Now()
		done.To, done.Stages = a.addr, a.stages
		done.Took, done.Gap = now.Sub(done.At), now.Sub(f.gap)
		s := &f.status
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
		f.last = done
	}
	h.mu.Unlock()
	if done != nil && done.From != done.To {
		h.cfg.Log.Info("failed over", "from", done.From, "to", done.To, "reason", done.Reason, "took", done.Took, "gap", done.Gap,
			"carried", done.Carried, "uncertain", done.Uncertain, "lost", done.Lost)
	}
	if o != nil {
		o.done <- o.result(a)
	}
}

// failoverStatus is for the status. The caller holds h.mu.
func (h *Host) failoverStatus() FailoverStatus {
	s := h.failovers.status
	s.Count = maps.Clone(s.Count)
	if last := h.failovers.last; last != nil {
		l := *last
		s.Last = &l
	}
	if b := h.reserve; b != nil && b.lives() {
		s.Standby = b.addr
	} else if h.cfg.Standby && h.inUse != nil && h.noReserve != nil {
		s.NoStandby = h.noReserve.Error()
	}
	return s
}

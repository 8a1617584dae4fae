package host

import (
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// failovers are the books about changes of the session in use, and what is on its way
// from one to the next. They are guarded by Host.mu.
type failovers struct {
	uplink.Failovers
	request  *switchRequest     // that the change is for; nil if nobody wanted it
	unsent   *messaging.Remains // of the last session; nil if there is nothing, or it is taken
	offloads vnet.Offloads      // of the session whose frames they are
}

// takeUnsent returns what the last session has left, once.
func (h *Host) takeUnsent() *messaging.Remains {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.failovers.unsent
	h.failovers.unsent = nil
	return r
}

// beginFailover enters that a session was ended, when frames stopped, and what it has
// left.
func (h *Host) beginFailover(a *attachment, e *ending, stopped time.Time, r *messaging.Remains) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, began := &h.failovers, stopped
	if e.request != nil {
		f.request, began = e.request, e.request.started
	}
	f.Begin(a.addr, e.reason, began, stopped)
	f.Frames(0, r.Uncertain, r.Lost+r.Unrevoked)
}

// keepUnsent keeps what a session has left for the next one that is put to use.
func (h *Host) keepUnsent(r *messaging.Remains) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := &h.failovers; f.unsent != nil { // of a session that was never put to use
		r.Frames = append(r.Frames, f.unsent.Frames...)
	}
	h.failovers.unsent = r
}

// sendable returns what of the last session's frames the one that the netdevice has
// been configured for can send: those that were read when the operating system
// left more to the I/O unit are lost.
func (h *Host) sendable(r *messaging.Remains, offloads vnet.Offloads) *messaging.Remains {
	if r == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &h.failovers
	if f.Open() && offloads.Intersect(f.offloads) != f.offloads {
		f.Frames(0, 0, r.Count())
		return nil
	}
	f.Frames(r.Count(), 0, 0)
	return r
}

// endFailover enters that frames move, and tells who wanted it.
func (h *Host) endFailover(a *attachment, offloads vnet.Offloads) {
	h.mu.Lock()
	f := &h.failovers
	done, o := f.End(a.addr, a.stages, time.Now()), f.request
	f.request, f.offloads, h.session.unit = nil, offloads, a.unit
	h.mu.Unlock()
	if done != nil && done.From != done.To {
		h.cfg.Log.Info("failed over", "from", done.From, "to", done.To, "reason", done.Reason,
			"took", done.Took, "gap", done.Gap,
			"carried", done.Carried, "uncertain", done.Uncertain, "lost", done.Lost)
	}
	if o != nil {
		o.done <- o.result(a)
	}
}

// failoverStatus is for the status. The caller holds h.mu.
func (h *Host) failoverStatus() uplink.FailoverStatus {
	s := h.failovers.Status()
	if b := h.standby.a; b != nil && b.lives() {
		s.Standby = b.addr
	} else if h.cfg.Standby && h.session.conn != nil && h.standby.reason != nil {
		s.NoStandby = h.standby.reason.Error()
	}
	return s
}

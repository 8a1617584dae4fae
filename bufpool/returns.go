package bufpool

import "github.com/splitnic/splitnic/protocol"

// indicatesPerUpdate is the number of BufferRDMAIndicates after which the target sends an
// update in any case. The update acknowledges them. The initiator may have twice as many
// unacknowledged, so it does not have to stop.
const indicatesPerUpdate = protocol.IndicatesPerChannel / 2

// Returns decides when which elements of a data channel's local pools are returned in an
// update: those of a pool when a quarter of them is free, and earlier those that the peer
// waits for. Only the receiver of the channel uses it.
type Returns struct {
	// Room is the number of bytes of an update for its pools. A quarter of the largest pool
	// must fit.
	Room int
	// Mode is the transfer mode.
	Mode protocol.Mode

	urgent   bool   // the peer waits for the acknowledgement of an indication
	messages int    // BufferRDMAIndicates since the last update
	latest   *Local // pool of the element indicated last; an update with that element acknowledges all
}

// Indicated records that an element of l that was indicated on the control channel is free.
// last is true for the last element of a message.
func (r *Returns) Indicated(l *Local, last bool) {
	r.latest = l
	if last {
		r.messages++
	}
	// In mode imm the peer waits for each indicated element.
	r.urgent = r.urgent || r.Mode.Immediate() || r.messages >= indicatesPerUpdate
}

// Retire reports whether an update has to be sent before a pool ends, because only the return
// of one of its elements acknowledges the last indications. If so, the next update is urgent
// and names elements of the pool, for which it counts like one that is due (package doc).
func (r *Returns) Retire(l *Local) bool {
	if r.latest != l {
		return false
	}
	r.urgent = r.urgent || r.messages > 0
	return r.urgent
}

// Forget removes a pool that ends.
func (r *Returns) Forget(l *Local) {
	if r.latest == l {
		r.latest = nil
	}
}

// Due reports whether an update is due.
func (r *Returns) Due(pools []*Local) bool {
	due := r.urgent
	for _, l := range pools {
		due = due || l.Elements.Due()
	}
	return due
}

// Next appends the elements of the next update to out: those of pools that are due, or in
// some cases of all pools, as far as they fit. An urgent update begins with the pool of the
// element that was indicated last. Next may append nothing.
func (r *Returns) Next(pools []*Local, out []protocol.PoolReturn) []protocol.PoolReturn {
	room := r.Room
	add := func(l *Local) {
		free := l.Elements.Returning()
		if len(free) == 0 {
			return
		}
		if protocol.PoolReturnSize(len(free)) > room {
			// The pool is left to the next update, except if it is the first one: then as
			// many elements as fit are returned, which are at least a quarter.
			if len(out) > 0 {
				return
			}
			free = free[:(room-protocol.PoolReturnSize(0))/4*2]
		}
		room -= protocol.PoolReturnSize(len(free))
		out = append(out, protocol.PoolReturn{Pool: l.Ref, Elements: free})
	}
	var first *Local
	if r.urgent && r.latest != nil {
		first = r.latest
		add(first)
	}
	// Pools that are due come before the others, because the bound on updates relies on a
	// quarter of a pool in each.
	for _, l := range pools {
		if l != first && l.Elements.Due() {
			add(l)
		}
	}
	if r.urgent || r.Mode.Indicated() {
		for _, l := range pools {
			if l != first && !l.Elements.Due() {
				add(l)
			}
		}
	}
	if len(out) == 0 {
		r.urgent, r.messages = false, 0
	}
	return out
}

// Sent records that an update with the elements of Next was sent. If it has the element that
// was indicated last, it acknowledges all indications.
func (r *Returns) Sent(pools []*Local, returns []protocol.PoolReturn) {
	for i := range returns {
		for _, l := range pools {
			if l.Ref == returns[i].Pool {
				l.Elements.Returned(len(returns[i].Elements))
			}
		}
	}
	if r.latest == nil || len(r.latest.Elements.Returning()) == 0 {
		r.urgent, r.messages = false, 0
	}
}

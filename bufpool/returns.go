package bufpool

import "github.com/splitnic/splitnic/protocol"

// indicatesPerUpdate is after how many BufferRDMAIndicates the target returns
// what is free in any case: it acknowledges them, and the initiator, which may
// have twice as many unacknowledged, does not have to stop.
const indicatesPerUpdate = protocol.IndicatesPerChannel / 2

// Returns decides which elements of the local pools of a data channel go back to the
// peer in an update, and when: a pool's when a quarter of them is free, and before
// that what the peer waits for. It belongs to the receiver of the channel.
type Returns struct {
	// Room is how many bytes of an update are for the pools in it: a quarter of the
	// largest pool at least.
	Room int
	// Mode is how the peer transfers frames.
	Mode protocol.Mode

	urgent   bool   // the peer waits for an element that was indicated on the control channel
	messages int    // BufferRDMAIndicates since the last update
	latest   *Local // of the element indicated last: an update with it acknowledges all
}

// Indicated records that a transfer that was indicated on the control channel, as
// the last one of its message or not, is taken, and its element free.
func (r *Returns) Indicated(l *Local, last bool) {
	r.latest = l
	if last {
		r.messages++
	}
	// In mode imm the peer waits for this very element.
	r.urgent = r.urgent || r.Mode == protocol.ModeImm || r.messages >= indicatesPerUpdate
}

// Retire reports whether there has to be an update before a pool goes, because the
// peer may wait for what it has indicated there. The next one is that.
func (r *Returns) Retire() bool {
	r.urgent = r.urgent || r.messages > 0
	return r.urgent
}

// Forget forgets a pool that goes.
func (r *Returns) Forget(l *Local) {
	if r.latest == l {
		r.latest = nil
	}
}

// Due reports whether an update has to be sent.
func (r *Returns) Due(pools []*Local) bool {
	due := r.urgent
	for _, l := range pools {
		due = due || l.Elements.Due()
	}
	return due
}

// Next appends what the next update returns: the elements of the pools that are due,
// or of all, as far as they fit. An urgent one begins with the pool of the element
// that was indicated last. There may be nothing.
func (r *Returns) Next(pools []*Local, out []protocol.PoolReturn) []protocol.PoolReturn {
	room := r.Room
	add := func(l *Local) {
		free := l.Elements.Returning()
		if len(free) == 0 {
			return
		}
		if protocol.PoolReturnSize(len(free)) > room {
			// Left to the next update, but for the first pool, of which so many
			// elements fit that they are a quarter at least.
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
	// The others that are due before those that are not: only updates that
	// somebody is due for are bounded by what is free.
	for _, l := range pools {
		if l != first && l.Elements.Due() {
			add(l)
		}
	}
	if r.urgent || r.Mode == protocol.ModeIndicate {
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

// Sent records that an update with the elements of Next is on its way. If it names
// the one that was indicated last it acknowledges all that was.
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

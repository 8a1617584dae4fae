package paths

import (
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// route is the part of a direct path that the goroutines that move frames use.
type route struct {
	peer      Peer
	own       protocol.MACSet
	theirs    protocol.MACSet
	reader    *reader
	holdLimit int // bytes in the ring while frames wait

	state   state       // guarded by Split.mu; written under the locks of all queues, too
	gone    atomic.Bool // state is closed
	probes  arrivals
	markers arrivals
	count   counts
}

// judge checks a frame of n bytes from the peer; head is its beginning. This host trusts the
// I/O unit's description of the peer, and not the peer.
func (p *route) judge(head []byte, n int) verdict {
	switch {
	case len(head) < vnet.MinFrame:
		return malformed
	case !p.theirs.Has(protocol.MAC(head[srcAt:typeAt])):
		return source
	case head[dstAt]&1 != 0 || !p.own.Has(protocol.MAC(head[dstAt:srcAt])):
		return destination
	case !mayCarry(&p.peer.VLANs, head):
		return vlan
	case vnet.CheckHead(head, n, p.peer.MTU) != nil || vnet.Tiny(head, n):
		return malformed
	default:
		return pass
	}
}

// table determines which frames use which path. It is never changed, only replaced. There is
// none while no path is open.
type table struct {
	to     protocol.MACSet // addresses of all peers
	paths  []*route        // path of each address in to
	direct []*route        // paths in state direct
	held   []*route        // paths in state held
}

// newTable returns the table of paths, or nil if none is open.
func newTable(all []*route) *table {
	t := &table{}
	var macs []protocol.MAC
	for _, p := range all {
		switch {
		case p.state == held:
			t.held = append(t.held, p)
		case p.state == direct:
			t.direct = append(t.direct, p)
		}
		if p.state != closed {
			macs = append(macs, p.peer.MACs...)
		}
	}
	if len(macs) == 0 {
		return nil
	}
	t.to = protocol.NewMACSet(macs)
	t.paths = make([]*route, len(t.to))
	for _, p := range all {
		for _, m := range p.peer.MACs {
			if at := t.to.Index(m); p.state != closed && at >= 0 {
				t.paths[at] = p
			}
		}
	}
	return t
}

// find returns the direct path to the destination of a frame from the netdevice, in any
// state, or nil if there is none.
func (t *table) find(frame []byte) *route {
	if len(frame) < vnet.MinFrame || frame[dstAt]&1 != 0 {
		return nil
	}
	at := t.to.Index(protocol.MAC(frame[dstAt:srcAt]))
	if at < 0 {
		return nil
	}
	p := t.paths[at]
	if !p.own.Has(protocol.MAC(frame[srcAt:typeAt])) || !mayCarry(&p.peer.VLANs, frame) {
		return nil
	}
	return p
}

// room returns how many frames can be read so that there is room for all of them, even if
// all are for the same path whose markers are in flight. If it returns 0, there is no room
// for those of the path full.
func (t *table) room() (n int, full *route) {
	n = maxRead
	for _, p := range t.held {
		if r := p.reader.ring.room(p.holdLimit); r < n {
			n, full = r, p
		}
	}
	return n, full
}

// maxRead is more frames than any sender reads in one call.
const maxRead = 1 << 16

// arrivals records which markers of the peer have arrived. Frames of one queue of the sender
// can arrive in any queue of the receiver, so a marker of each of the sender's queues has to
// arrive in each of the receiver's.
type arrivals struct {
	mu     sync.Mutex
	queues int         // number of the sender's queues
	seen   [][4]uint64 // for each queue of this host, a bit for each queue of the sender
	told   bool
}

// saw records a marker that arrived in a queue of this host, of which used are in use. It
// reports, once, that no marker is missing any more.
func (a *arrivals) saw(m protocol.Marker, queue, used int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if int(m.Queues) != a.queues { // the peer has another session, and repeats its markers
		a.queues, a.seen = int(m.Queues), nil
	}
	for len(a.seen) <= max(queue, used-1) {
		a.seen = append(a.seen, [4]uint64{})
	}
	a.seen[queue][m.Queue/64] |= 1 << (m.Queue % 64)
	return a.complete(used)
}

// look calls then if no marker is missing any more, after used has changed.
func (a *arrivals) look(used int, then func()) {
	a.mu.Lock()
	last := a.complete(used)
	a.mu.Unlock()
	if last {
		then()
	}
}

func (a *arrivals) complete(used int) bool {
	if a.told || a.queues == 0 || len(a.seen) < used {
		return false
	}
	for _, seen := range a.seen[:used] {
		for i := range a.queues {
			if seen[i/64]&(1<<(i%64)) == 0 {
				return false
			}
		}
	}
	a.told = true
	return true
}

// state is the state of a direct path.
type state uint8

const (
	opening state = iota // frames go through the I/O unit
	held                 // frames wait while markers are in flight
	spilled              // frames go through the I/O unit again: none has gone directly
	direct               // frames go directly
	leaving              // frames wait while direct frames are in flight
	closed               // frames go through the I/O unit
)

// event is an event of a direct path.
type event uint8

const (
	enter event = iota
	confirm
	leave
	overflow // there is no room for more frames that wait
	end
)

// after returns the state after an event. It is s if the event has no effect: the peer may
// confirm a path that is already leaving.
func (s state) after(e event) state {
	switch {
	case e == end:
		return closed
	case e == enter && s == opening:
		return held
	case e == confirm && s == held:
		return direct
	case (e == leave || e == overflow) && s == held:
		return spilled // the frames that wait can follow the earlier ones at once
	case e == leave && s == direct:
		return leaving
	default:
		return s
	}
}

// holds reports whether frames wait.
func (s state) holds() bool { return s == held || s == leaving }

// routes reports whether frames do not use the path through the I/O unit.
func (s state) routes() bool { return s == held || s == direct || s == leaving }

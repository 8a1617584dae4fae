package paths

import (
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// table says which frames go which way. It is never changed, only replaced as a
// whole. There is none while no path is open.
type table struct {
	to     protocol.MACSet // of peers
	paths  []*route        // of each of them, in that order
	direct []*route        // that frames go to, once each
	holds  []*route        // where they wait, and none may be lost
}

// newTable is nil if no path is open.
func newTable(all []*route) *table {
	t := &table{}
	var macs []protocol.MAC
	for _, p := range all {
		switch {
		case p.state.holds():
			t.holds = append(t.holds, p)
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

// find is the direct path that a frame of the netdevice's is for, whether it takes that
// or not, or nil if there is none.
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

// room is how many frames can be read so that none is lost, whosever they are.
func (t *table) room() int {
	n := maxRead
	for _, p := range t.holds {
		n = min(n, p.reader.ring.room(p.holdLimit))
	}
	return n
}

// maxRead is more than anybody reads in one go.
const maxRead = 1 << 16

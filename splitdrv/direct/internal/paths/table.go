package paths

import (
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

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

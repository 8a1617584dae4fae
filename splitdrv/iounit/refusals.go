package iounit

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// Dropped counts frames on the way to the LAN that the policy of a host does not
// let pass, besides those that protocol.Statistics has.
type Dropped struct {
	NestedTags   uint64 `json:"nested_tags" metric:"iounit_host_frames,nested_tags" help:"dropped: more than one VLAN tag (policy: nested-tags)"`
	LinkControl  uint64 `json:"link_control" metric:"iounit_host_frames,link_control" help:"dropped: for the next switch (policy: link-control)"`
	IPSource     uint64 `json:"ip_source" metric:"iounit_host_frames,ip_source" help:"dropped: source IP address not allowed (policy: ips)"`
	TinySegments uint64 `json:"tiny_segments" metric:"iounit_host_frames,tiny_segments" help:"dropped: super-frames of segments that no kernel makes"`
	GroupRate    uint64 `json:"group_rate" metric:"iounit_host_frames,group_rate" help:"dropped: too many to groups (policy: max-tx-group-pps)"`
}

// into adds them to the counters that a host knows, by what comes nearest.
func (d Dropped) into(s protocol.Statistics) protocol.Statistics {
	s.TxSource += d.IPSource
	s.TxVLAN += d.NestedTags
	s.TxDropped += d.LinkControl + d.TinySegments + d.GroupRate
	return s
}

// refusals keep the first frame of a session for each reason why frames are
// dropped, so that somebody can be told which key of the policy it is.
type refusals struct {
	seen [verdicts]atomic.Bool
	wake chan struct{} // of capacity one: there is a new one

	mu    sync.Mutex
	texts []string // why, the first one first
	fresh int      // so many of the last ones have not been logged
}

func newRefusals() *refusals { return &refusals{wake: make(chan struct{}, 1)} }

// note remembers a frame that is dropped, if it is the first one for that reason.
// It is called for each.
func (r *refusals) note(v verdict, head []byte) {
	if r.seen[v].Load() || r.seen[v].Swap(true) {
		return
	}
	r.mu.Lock()
	r.texts, r.fresh = append(r.texts, why(v, head)), r.fresh+1
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// forget makes the next frame the first one again, under other rules.
func (r *refusals) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts, r.fresh = nil, 0
	for i := range r.seen {
		r.seen[i].Store(false)
	}
}

// list is why frames were dropped.
func (r *refusals) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.texts)
}

// run tells why frames are dropped, each reason once, until done is closed.
func (r *refusals) run(done <-chan struct{}, tell func(reason string)) {
	for {
		select {
		case <-done:
			return
		case <-r.wake:
		}
		r.mu.Lock()
		fresh := slices.Clone(r.texts[len(r.texts)-r.fresh:])
		r.fresh = 0
		r.mu.Unlock()
		for _, text := range fresh {
			tell(text)
		}
	}
}

// why says in words why a frame is dropped, and what allows it. Only a frame to a
// group that is one too many may be without its head: which one that is says
// nothing about it.
func why(v verdict, head []byte) string {
	if v == groupRate {
		return "more frames in a second to all or to groups than `max-tx-group-pps` in the policy allows"
	}
	to, from := protocol.MAC(head[dstAt:]), protocol.MAC(head[srcAt:])
	switch v {
	case source:
		return fmt.Sprintf("source address %v is not this host's; `macs` in the policy gives it others, for machines that are bridged to it", from)
	case vlan:
		id, ok := vnet.VLAN(head)
		if !ok {
			return "a VLAN tag is cut off"
		}
		if id == 0 {
			return "no VLAN tag; `untagged: yes` in the policy allows that"
		}
		return fmt.Sprintf("VLAN %d; `vlans` in the policy gives this host others", id)
	case nested:
		return "more than one VLAN tag; `nested-tags: yes` in the policy allows that"
	case linkControl:
		return fmt.Sprintf("a link-control frame to %v, EtherType %#04x; `link-control: yes` in the policy allows these", to,
			vnet.LayersOf(head).Proto)
	case ipSource:
		return fmt.Sprintf("EtherType %#04x from %v, with the IP address of another sender or none to be seen; `ips` in the policy gives this host others", vnet.LayersOf(head).Proto, from)
	case tiny:
		return fmt.Sprintf("a super-frame of segments of %d bytes, which no kernel makes",
			binary.LittleEndian.Uint16(head[4:vnet.HdrLen]))
	default:
		return "it is not a frame"
	}
}

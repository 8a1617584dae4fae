package guard

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// Dropped counts frames to the LAN that were dropped by a host's policy, in addition to those
// in protocol.Statistics.
type Dropped struct {
	NestedTags   uint64 `json:"nested_tags" metric:"iounit_host_frames,nested_tags" help:"dropped: more than one VLAN tag (policy: nested-tags)"`
	LinkControl  uint64 `json:"link_control" metric:"iounit_host_frames,link_control" help:"dropped: for the next switch (policy: link-control)"`
	IPSource     uint64 `json:"ip_source" metric:"iounit_host_frames,ip_source" help:"dropped: source IP address not allowed (policy: ips)"`
	TinySegments uint64 `json:"tiny_segments" metric:"iounit_host_frames,tiny_segments" help:"dropped: super-frames of segments that no kernel makes"`
	GroupRate    uint64 `json:"group_rate" metric:"iounit_host_frames,group_rate" help:"dropped: too many to groups or unknown stations (policy: max-tx-group-pps)"`
}

// Into adds them to the counters that are sent to the host, each to the closest one.
func (d Dropped) Into(s protocol.Statistics) protocol.Statistics {
	s.TxSource += d.IPSource
	s.TxVLAN += d.NestedTags
	s.TxDropped += d.LinkControl + d.TinySegments + d.GroupRate
	return s
}

// Refusals describes the first dropped frame of a session for each reason, to show which key
// of the policy is the cause.
type Refusals struct {
	seen [verdicts]atomic.Bool
	wake chan struct{} // signals a new text; capacity one

	mu    sync.Mutex
	texts []string // descriptions, oldest first
	fresh int      // number of the last texts that were not logged yet
}

func newRefusals() *Refusals { return &Refusals{wake: make(chan struct{}, 1)} }

// note describes a dropped frame, if it is the first one for its reason. It is called for
// each dropped frame.
func (r *Refusals) note(v verdict, head []byte) {
	if r.seen[v].Load() || r.seen[v].Swap(true) {
		return
	}
	r.mu.Lock()
	r.texts, r.fresh = append(r.texts, why(v, head)), r.fresh+1
	r.mu.Unlock()
	wake.Up(r.wake)
}

// Forget removes all descriptions, when the rules have changed.
func (r *Refusals) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts, r.fresh = nil, 0
	for i := range r.seen {
		r.seen[i].Store(false)
	}
}

// List returns the descriptions.
func (r *Refusals) List() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.texts)
}

// Run calls tell with each new description, until done is closed.
func (r *Refusals) Run(done <-chan struct{}, tell func(reason string)) {
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

// why describes why a frame is dropped, and which key of the policy permits it. head may be
// nil only for groupRate, whose description does not depend on the frame.
func why(v verdict, head []byte) string {
	if v == groupRate {
		return "more frames in a second to all, to groups, or to stations that the LAN does not know, than `max-tx-group-pps` in the policy allows"
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
		if id > protocol.MaxVLAN {
			return fmt.Sprintf("VLAN %d, which 802.1Q reserves and nobody may use", id)
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

package iounit

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
)

// tallies counts established and refused sessions.
type tallies struct {
	served    atomic.Uint64
	unrevoked atomic.Uint64 // see Status.Unrevoked
	elsewhere atomic.Uint64 // see Status.Elsewhere

	counts     sync.Mutex        // guards the fields below
	violations map[string]uint64 // violations of the protocol, by rule
	refused    map[string]uint64 // connections and hosts without a session, by reason
	ended      map[string]uint64 // ends of established sessions, by reason
}

func newTallies() *tallies {
	return &tallies{
		violations: make(map[string]uint64), refused: make(map[string]uint64), ended: make(map[string]uint64),
	}
}

// turnedAway counts a connection or a host without a session.
func (t *tallies) turnedAway(reason string) { t.count(t.refused, reason) }

func (t *tallies) count(in map[string]uint64, what string) {
	t.counts.Lock()
	defer t.counts.Unlock()
	in[what]++
}

// violation counts the rule that a host has broken, if err means that.
func (t *tallies) violation(err error) {
	rule := brokenRule(err)
	if rule == "" {
		return
	}
	t.count(t.violations, rule)
}

func (t *tallies) clone() (violations, refused, ended map[string]uint64) {
	t.counts.Lock()
	defer t.counts.Unlock()
	return maps.Clone(t.violations), maps.Clone(t.refused), maps.Clone(t.ended)
}

// HostCounters returns the table of an I/O unit's counters of a host, in the order of
// HostStatus.Counts. Their names are paths in the status.
func HostCounters() []counter.Counter {
	within := func(path string, all []counter.Counter) []counter.Counter {
		for i := range all {
			all[i].Name = path + all[i].Name
		}
		return all
	}
	all := within("statistics.", counter.Of[protocol.Statistics](""))
	all = append(all, within("dropped_by_policy.", counter.Of[guard.Dropped]("tx"))...)
	return append(all, counter.Of[PortCounters]("")...)
}

// PortCounters has the counters of a session that do not count frames by result.
type PortCounters struct {
	Announced           uint64 `json:"announced" metric:"iounit_host_announcements" help:"frames that told the LAN where the host is"`
	TxLimited           uint64 `json:"tx_limited" metric:"iounit_host_limited" help:"times that a channel had to wait because of a rate"`
	RxLimited           uint64 `json:"rx_limited" metric:"iounit_host_limited" help:"times that a channel had to wait because of a rate"`
	TxOversize          uint64 `json:"tx_oversize" metric:"iounit_host_oversize_frames" help:"frames passed that are longer than the card's MTU and one VLAN tag, which cards may drop"`
	HeartbeatsThrottled uint64 `json:"heartbeats_throttled" metric:"iounit_host_heartbeats_throttled" help:"times that heartbeats came too fast and were left waiting"`
}

package iounit

import (
	"maps"
	"sync"
	"sync/atomic"
)

// tallies count what has become of sessions, and of those that were not to be.
type tallies struct {
	served    atomic.Uint64
	unrevoked atomic.Uint64 // see Status.Unrevoked

	counts     sync.Mutex        // guards what follows
	violations map[string]uint64 // of the protocol, by rule
	refused    map[string]uint64 // connections and hosts, by reason
	ended      map[string]uint64 // sessions that were established, by reason
}

func newTallies() *tallies {
	return &tallies{
		violations: make(map[string]uint64), refused: make(map[string]uint64), ended: make(map[string]uint64),
	}
}

// turnedAway counts a connection, or a host, that got no session.
func (t *tallies) turnedAway(reason string) { t.count(t.refused, reason) }

// count counts something in one of the maps that counts guards.
func (t *tallies) count(in map[string]uint64, what string) {
	t.counts.Lock()
	defer t.counts.Unlock()
	in[what]++
}

// violation counts the rule that a host broke, if that is what ended its
// session.
func (t *tallies) violation(err error) {
	rule := brokenRule(err)
	if rule == "" {
		return
	}
	t.count(t.violations, rule)
}

// clone copies the tallies by rule and reason.
func (t *tallies) clone() (violations, refused, ended map[string]uint64) {
	t.counts.Lock()
	defer t.counts.Unlock()
	return maps.Clone(t.violations), maps.Clone(t.refused), maps.Clone(t.ended)
}

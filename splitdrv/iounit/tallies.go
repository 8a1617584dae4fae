package iounit

import (
	"maps"
	"sync"
	"sync/atomic"
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

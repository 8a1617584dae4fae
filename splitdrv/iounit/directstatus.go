package iounit

import (
	"time"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/pairs"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// DirectStatus is the status of the direct connections between an I/O unit's hosts.
type DirectStatus struct {
	DirectCounters
	// Ended counts the ends of connections that were offered, or held from before, by
	// reason, one of DirectEndings.
	Ended map[string]uint64 `json:"ended_by"`
	Pairs []DirectPair      `json:"pairs"`
}

// DirectCounters has the counters of direct connections since the start.
type DirectCounters struct {
	Offers     uint64 `json:"offers" metric:"iounit_direct_offers" help:"direct connections offered to two hosts"`
	Starts     uint64 `json:"starts" metric:"iounit_direct_starts" help:"direct connections that started"`
	Kept       uint64 `json:"kept" metric:"iounit_direct_kept" help:"of these, those that another I/O unit had offered"`
	Unanswered uint64 `json:"unanswered" metric:"iounit_direct_unanswered" help:"hosts that did not say in time that a connection had ended"`
	Stray      uint64 `json:"stray" metric:"iounit_direct_stray_messages" help:"hosts' messages about connections that were over"`
}

// DirectPair describes two hosts that have or are about to have a direct connection, or that
// exchange frames and may not have one.
type DirectPair struct {
	Hosts [2]string        `json:"hosts"`
	ID    session.DirectID `json:"id,omitzero"`
	Step  string           `json:"step"` // a pairs.Step, or NoDirect
	Since time.Time        `json:"since,omitzero"`
	Mode  protocol.Mode    `json:"mode,omitempty"`
	Why   string           `json:"why,omitempty"` // why it ends, or why there is none
}

// DirectSteps returns the steps of a direct connection.
func DirectSteps() []string {
	return []string{string(pairs.Offered), string(pairs.Connecting), string(pairs.Started), string(pairs.Ending)}
}

// NoDirect is the step of two hosts without a direct connection.
const NoDirect = "none"

// DirectEndings returns the reasons by which the ends of direct connections are counted.
func DirectEndings() (names []string) {
	for _, c := range pairs.Ends() {
		names = append(names, string(c))
	}
	return names
}

// DirectCounts returns the table of an I/O unit's counters of direct connections.
func DirectCounts() []counter.Counter {
	all := counter.Of[DirectCounters]("")
	for i := range all {
		all[i].Name = "direct." + all[i].Name
	}
	return all
}

// status returns a snapshot, or nil if the I/O unit has no direct connections.
func (d *directing) status() *DirectStatus {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.pairs.Counts()
	s := &DirectStatus{
		DirectCounters: DirectCounters{c.Offers, c.Starts, c.Kept, c.Unanswered, c.Stray},
		Ended:          make(map[string]uint64, len(c.Ends)), Pairs: []DirectPair{},
	}
	for why, n := range c.Ends {
		s.Ended[string(why)] = n
	}
	for _, p := range d.pairs.List() {
		q := DirectPair{ID: p.ID, Step: string(p.Step), Since: p.Since, Mode: p.Mode, Why: string(p.Why)}
		if q.Step == "" {
			q.Step = NoDirect
		}
		for i, h := range p.Hosts {
			if x := d.sessions[h]; x != nil { // nil if the host has left
				q.Hosts[i] = x.facts.Name
			}
		}
		s.Pairs = append(s.Pairs, q)
	}
	return s
}

// whyNot returns why a host has no direct connections, or "" if it may have some.
func (d *directing) whyNot(h *host) string {
	if d == nil {
		return string(pairs.Unwilling)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.of[h]
	if x == nil {
		return string(pairs.Opening)
	}
	return string(d.pairs.WhyNot(x.id))
}

package iounit

import (
	"time"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/pairs"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// DirectStatus is about the direct connections between an I/O unit's hosts.
type DirectStatus struct {
	DirectCounters
	// Ended counts the ends of connections that were offered, or held from before, by
	// reason: some of DirectEndings.
	Ended map[string]uint64 `json:"ended_by"`
	Pairs []DirectPair      `json:"pairs"`
}

// DirectCounters count since the start.
type DirectCounters struct {
	Offers     uint64 `json:"offers" metric:"iounit_direct_offers" help:"direct connections offered to two hosts"`
	Starts     uint64 `json:"starts" metric:"iounit_direct_starts" help:"direct connections that started"`
	Kept       uint64 `json:"kept" metric:"iounit_direct_kept" help:"of these, those that another I/O unit had offered"`
	Unanswered uint64 `json:"unanswered" metric:"iounit_direct_unanswered" help:"hosts that did not say in time that a connection had ended"`
	Stray      uint64 `json:"stray" metric:"iounit_direct_stray_messages" help:"hosts' messages about connections that were over"`
}

// DirectPair is two hosts that have a direct connection, are about to, or exchange
// frames and may not.
type DirectPair struct {
	Hosts [2]string        `json:"hosts"`
	ID    session.DirectID `json:"id,omitzero"`
	Step  string           `json:"step"` // of pairs.Step; "none" if they have none
	Since time.Time        `json:"since,omitzero"`
	Mode  protocol.Mode    `json:"mode,omitempty"`
	Why   string           `json:"why,omitempty"` // it ends, or there is none
}

// DirectSteps are the steps of a direct connection.
func DirectSteps() []string {
	return []string{string(pairs.Offered), string(pairs.Connecting), string(pairs.Started), string(pairs.Ending)}
}

// NoDirect is the step of two hosts that have no connection.
const NoDirect = "none"

// DirectEndings are the reasons by which the ends of direct connections are counted.
func DirectEndings() (names []string) {
	for _, c := range pairs.Ends() {
		names = append(names, string(c))
	}
	return names
}

// DirectCounts is the table of what an I/O unit counts of direct connections.
func DirectCounts() []counter.Counter {
	all := counter.Of[DirectCounters]("")
	for i := range all {
		all[i].Name = "direct." + all[i].Name
	}
	return all
}

// status is nil where there are no direct connections.
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
			if x := d.sessions[h]; x != nil { // it has not left
				q.Hosts[i] = x.facts.Name
			}
		}
		s.Pairs = append(s.Pairs, q)
	}
	return s
}

// whyNot is why a host has no direct connections, "" if it may.
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

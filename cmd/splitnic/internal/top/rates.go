// Package top computes and shows rates from the counters in the status of hosts and I/O units.
package top

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// counts has the counters of a path or card, from a host's point of view: out is from its programs.
type counts struct{ outFrames, outBytes, inFrames, inBytes, dropped, waits uint64 }

// path is a path of frames: a queue of the session with the I/O unit, or a direct connection. Its
// key changes when its counters restart at 0.
type path struct {
	key, name string
	counts
}

// card is a card of this machine (a host), or one of an I/O unit's hosts.
type card struct {
	key, name string
	paths     []path
	// total has the I/O unit's counters of the card itself; nil if the totals are the sums of
	// the paths.
	total *counts
}

// Sample has the values of counters at a point in time.
type Sample struct {
	at    time.Time
	cards []card
}

// NewSample returns a sample of the counters in the status of daemons.
func NewSample(all []render.Status, at time.Time) Sample {
	s := Sample{at: at}
	for _, one := range all {
		if h := one.Host; h != nil {
			c := card{key: "host " + h.Name + " " + h.Card, name: h.Card}
			if h.Traffic != nil {
				c.paths = queues("unit ", h.IOUnit.Session, h.Traffic, false)
			}
			for i := range h.Direct.Connections {
				d := &h.Direct.Connections[i]
				n := &d.Counts
				c.paths = append(c.paths, path{"direct " + d.ID.String(), "direct " + d.Peer, counts{
					n.OutFrames, n.OutBytes, n.InFrames, n.InBytes,
					n.Source + n.Destination + n.VLAN + n.Malformed + n.Full + n.Lost, 0}})
			}
			s.cards = append(s.cards, c)
		}
		if u := one.Unit; u != nil {
			for i := range u.Hosts {
				s.cards = append(s.cards, unitCard(u.Name, &u.Hosts[i]))
			}
		}
	}
	return s
}

// unitCard returns the card of a host of an I/O unit.
func unitCard(unit string, h *iounit.HostStatus) card {
	t := &h.Statistics
	c := card{
		key: unit + " " + h.Session, name: unit + "/" + h.Name,
		total: &counts{t.TxFrames, t.TxBytes, t.RxFrames, t.RxBytes, render.Dropped(h), h.TxLimited + h.RxLimited},
	}
	if h.Traffic != nil {
		c.paths = queues("", h.Session, h.Traffic, true)
	}
	return c
}

// queues returns the paths of a session's queues. turned exchanges out and in, for an I/O unit: it
// sends what its host receives.
func queues(prefix, session string, s *messaging.Stats, turned bool) (all []path) {
	for i := range s.Channels {
		ch := &s.Channels[i]
		c := counts{
			ch.TxFrames, ch.TxBytes - min(ch.TxBytes, vnet.HdrLen*ch.TxFrames),
			ch.RxFrames, ch.RxBytes - min(ch.RxBytes, vnet.HdrLen*ch.RxFrames),
			ch.TxTooLong + ch.TxInvalid + ch.TxMalformed + ch.RxDropped + ch.RxOverMTU + ch.RxMalformed + ch.RxLost,
			ch.TxNoCredit + ch.TxNoSlot + ch.TxThrottled,
		}
		if turned {
			c.outFrames, c.outBytes, c.inFrames, c.inBytes = c.inFrames, c.inBytes, c.outFrames, c.outBytes
		}
		name := fmt.Sprintf("%squeue %d", prefix, i+1)
		if ch.Latency {
			name = prefix + "latency"
		}
		all = append(all, path{fmt.Sprintf("%s %d", session, i), name, c})
	}
	return all
}

// Rates has rates per second. The bits are those of Ethernet frames.
type Rates struct {
	OutBits   float64 `json:"out_bits_per_second"`
	OutFrames float64 `json:"out_frames_per_second"`
	InBits    float64 `json:"in_bits_per_second"`
	InFrames  float64 `json:"in_frames_per_second"`
	Dropped   float64 `json:"dropped_per_second"`
	Waits     float64 `json:"waits_per_second"`
}

func (r Rates) plus(o Rates) Rates {
	return Rates{r.OutBits + o.OutBits, r.OutFrames + o.OutFrames, r.InBits + o.InBits, r.InFrames + o.InFrames,
		r.Dropped + o.Dropped, r.Waits + o.Waits}
}

// Row is a card, or one of its paths.
type Row struct {
	Name string `json:"name"`
	Rates
}

// Card has the rates of a card and of its paths.
type Card struct {
	Row
	Paths []Row `json:"paths"`
	// New is true if the card was not in the previous sample, so that its rates are unknown.
	New bool `json:"new,omitempty"`
}

// Since computes the rates between the sample before and s.
func (s Sample) Since(before Sample) []Card {
	old := map[string]*card{}
	for i := range before.cards {
		old[before.cards[i].key] = &before.cards[i]
	}
	seconds := s.at.Sub(before.at).Seconds()
	rows := make([]Card, len(s.cards))
	for i := range s.cards {
		c := &s.cards[i]
		rows[i] = c.since(old[c.key], seconds)
	}
	return rows
}

func (c *card) since(before *card, seconds float64) Card {
	row := Card{Row: Row{Name: c.name}, Paths: []Row{}, New: before == nil || seconds <= 0}
	paths := map[string]counts{}
	if before != nil {
		for _, p := range before.paths {
			paths[p.key] = p.counts
		}
	}
	for _, p := range c.paths {
		r := Row{Name: p.name}
		if !row.New {
			r.Rates = p.per(paths[p.key], seconds) // a new path began with 0
		}
		row.Paths = append(row.Paths, r)
		row.Rates = row.plus(r.Rates)
	}
	if c.total != nil && !row.New {
		row.Rates = c.total.per(*before.total, seconds)
	}
	return row
}

// per returns the differences between c and the earlier counters b, per second.
func (c counts) per(b counts, seconds float64) Rates {
	rate := func(now, before uint64) float64 { return float64(now-min(now, before)) / seconds }
	return Rates{
		8 * rate(c.outBytes, b.outBytes), rate(c.outFrames, b.outFrames), 8 * rate(c.inBytes, b.inBytes),
		rate(c.inFrames, b.inFrames), rate(c.dropped, b.dropped), rate(c.waits, b.waits),
	}
}

// Order is the sort order of cards.
type Order string

// The values of Order.
const (
	ByName    Order = "name"
	ByOut     Order = "out"
	ByIn      Order = "in"
	ByPackets Order = "packets"
	ByDrops   Order = "drops"
)

// Orders returns all orders. Their first letters are the keys that select them.
func Orders() []Order { return []Order{ByName, ByOut, ByIn, ByPackets, ByDrops} }

// Sort sorts cards: the largest first, or by name.
func Sort(cards []Card, by Order) {
	value := func(c *Card) float64 {
		switch by {
		case ByOut:
			return c.OutBits
		case ByIn:
			return c.InBits
		case ByPackets:
			return c.OutFrames + c.InFrames
		case ByDrops:
			return c.Dropped
		case ByName:
		}
		return 0
	}
	slices.SortStableFunc(cards, func(a, b Card) int {
		return cmp.Or(cmp.Compare(value(&b), value(&a)), cmp.Compare(a.Name, b.Name))
	})
}
